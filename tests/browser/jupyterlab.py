"""What the browser tests share: when they run, and notebooks of ours that take little time. The
driving is `paifuser_lab.bench.jupyterlab`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from paifuser_lab._files import asset
from paifuser_lab.bench.jupyterlab import (
    Lab,
    Page,
    browsing,
    chromium,
    serving,
    showing,
    write_notebook,
)

__all__ = [
    "Lab",
    "Page",
    "browsing",
    "chromium",
    "marks",
    "quick_copy",
    "serving",
    "showing",
    "write_notebook",
]


def marks() -> list[Any]:
    """The marks of every browser test: skipped with a reason if there is no Chromium, unless it is
    required.
    """
    is_required = "browser" in os.environ.get("PAIFUSER_REQUIRE", "")
    absent = chromium() is None and not is_required
    return [
        pytest.mark.browser,
        pytest.mark.timeout(600),
        pytest.mark.skipif(absent, reason="there is no Chromium on this machine"),
    ]


def quick_copy(name: str, folder: Path, parameters: str) -> None:
    """Copy one of the repository's notebooks, not run, with parameters that take little time."""
    notebook = nbformat.read(asset(f"notebooks/{name}"), as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source += f"\n{parameters}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / name)
