"""Copies of the notebooks whose parameters take little time; no other cell is changed. And small
notebooks for tests.

`python -m tests.support.quick_notebooks FOLDER` copies those that `make notebooks` executes.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent.parent.parent / "notebooks"
# Where a notebook has such a parameter, its copy has at most this.
AT_MOST = {"rounds": 3, "seconds": 1.0}
# What a notebook needs more time for, as less of it would leave out what later cells show.
NAMED: dict[str, dict[str, float]] = {"86_search": {"seconds": 10.0}}


def shortened(notebook: nbformat.NotebookNode, at_most: dict[str, float]) -> None:
    """Lower the parameters of a notebook that are above their bound."""
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    lines = cell.source.splitlines()
    for statement in ast.parse(cell.source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, ast.literal_eval(statement.value)
            if name in at_most and value > at_most[name]:
                lines[statement.lineno - 1] = f"{name} = {at_most[name]!r}"
    cell.source = "\n".join(lines)


def small_notebook(path: Path, parameters: str, *cells: str) -> Path:
    """Write a notebook of a cell of parameters and these cells."""
    notebook = nbformat.v4.new_notebook()
    spec = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook.metadata = {"kernelspec": spec}
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in (parameters, *cells)]
    notebook.cells[0].metadata.tags = ["parameters"]
    nbformat.write(notebook, path)
    return path


def main(folder: Path) -> None:
    """Write a quick copy of every notebook into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ipynb"):
        old.unlink()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        shortened(notebook, AT_MOST | NAMED.get(path.stem, {}))
        nbformat.write(notebook, folder / path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
