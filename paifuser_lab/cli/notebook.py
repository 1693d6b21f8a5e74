"""Run a notebook without a browser, completely or not at all. Built on papermill, with stricter
checks.

Papermill injects any name, only logs unknown ones, keeps `no` a string and writes its output in
place. Here the notebook must declare each parameter, and a run's folder appears only when
everything in it is complete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import DISK_FULL, cannot_write, replace_folder, staged
from ..errors import FileError, PaifuserError, first_line

REPORT = "report.json"
ENGINE = "paifuser_lab"
WORTH_A_LINE_S = 1.0  # cells that print nothing are stages from here on
MAX_LINES = 40


@dataclass(frozen=True)
class Stage:
    """A cell that was run: the heading above it, what it printed or returned, and its seconds."""

    title: str
    lines: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        first, *others = self.lines or ("",)
        if others:
            lines = (f"  {line}" for line in self.lines)
            return "\n".join([f"{self.title} · {self.seconds:.1f} s", *lines])
        return " · ".join(part for part in (self.title, first, f"{self.seconds:.1f} s") if part)


def run_notebook(
    notebook: Path,
    out: str | Path,
    parameters: Mapping[str, Any],
    *,
    replace: bool = False,
    keep_failed: Path | None = None,
    on_stage: Callable[[Stage], None] | None = None,
) -> Path:
    """Run a notebook with parameters; the executed notebook and all files that it writes appear
    together in the folder `out`. `on_stage` is called after each cell. What a notebook that fails
    had shown until then is the file `keep_failed`.
    """
    out = Path(out).resolve()
    _check_out(out, notebook.name, replace=replace)
    check_parameters(notebook, parameters)
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(staged(out))
        except OSError as error:
            raise cannot_write(f"into {out.parent}", error) from error
        executed = stage / notebook.name
        try:
            _execute(notebook, executed, {**parameters, "out": str(stage)}, on_stage)
            replace_folder(stage, out)
        except PaifuserError:
            if keep_failed is not None and executed.is_file():
                os.replace(executed, keep_failed)
            raise
        except OSError as error:
            if error.errno not in DISK_FULL:  # such as of a kernel that does not start
                raise
            raise cannot_write(f"into {out.parent}", error) from error
    return out


def declared(notebook: Path) -> dict[str, Any]:
    """The parameters that a notebook declares, as papermill finds them."""
    import nbformat
    import papermill
    from papermill.exceptions import PapermillException

    try:
        return dict(papermill.inspect_notebook(str(notebook)))
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        nbformat.ValidationError,
        PapermillException,
    ) as error:
        reason = first_line(error).removesuffix(".")
        raise FileError(
            f"{notebook.name} is no notebook that can be run ({reason}); save it again in Jupyter."
        ) from error


def check_parameters(notebook: Path, parameters: Mapping[str, Any]) -> None:
    """Raise for a parameter that the notebook does not declare."""
    known = declared(notebook)
    if not known:
        raise PaifuserError(f"{notebook.name} declares no parameters; tag one cell 'parameters'.")
    for name in (*parameters, "out"):
        if name not in known:
            raise PaifuserError(
                f"{notebook.name} has no parameter '{name}'; it has {', '.join(known)}."
            )


def _check_out(out: Path, name: str, *, replace: bool) -> None:
    if out.exists() and not out.is_dir():
        raise FileError(f"{out} is a file; give a folder.")
    is_ours = any((out / known).is_file() for known in (REPORT, name))
    if out.is_dir() and any(out.iterdir()) and not (replace and is_ours):
        hint = (
            "it does not look like an earlier run, so it is not replaced"
            if replace
            else "give --force to replace an earlier run"
        )
        raise FileError(f"The folder {out} is not empty; {hint}, or choose another.")


def _execute(
    notebook: Path,
    output: Path,
    parameters: dict[str, Any],
    on_stage: Callable[[Stage], None] | None,
) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        with _static_views():
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters,
                engine_name=None if on_stage is None else reporting_engine(on_stage),
                kernel_name="python3",
                cwd=str(Path.cwd()),
                store_widget_state=False,
                progress_bar=on_stage is None and sys.stderr.isatty(),
                # its end interrupts the kernel, which logs that as an error
                extra_arguments=["--log-level=CRITICAL"],
            )
    except DeadKernelError as error:
        raise PaifuserError(
            f"{notebook.name}: its process was ended from outside or crashed; most often memory "
            "ran out: give a smaller model or batch, or fewer --jobs."
        ) from error
    except PapermillExecutionError as error:
        raise PaifuserError(
            f"{notebook.name} failed in cell {error.exec_count}: {error.ename}: {error.evalue}"
        ) from error
    _check_complete(output)


def _check_complete(output: Path) -> None:
    import nbformat

    executed = nbformat.read(output, as_version=4)
    record = executed.metadata.get("papermill", {})
    is_complete = all(
        cell.metadata.get("papermill", {}).get("status") == "completed"
        for cell in executed.cells
        if cell.cell_type == "code"
    )
    if not record.get("end_time") or record.get("exception") or not is_complete:
        raise PaifuserError(f"{output.name} did not run to its end; run it again.")


@contextmanager
def _static_views() -> Iterator[None]:
    """Show pictures in place of widgets in the notebook's kernel; restore this process after."""
    before = os.environ.get("PAIFUSER_STATIC")
    os.environ.setdefault("PAIFUSER_STATIC", "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PAIFUSER_STATIC"]


def reporting_engine(on_stage: Callable[[Stage], None]) -> str:
    """The name of a papermill engine that calls `on_stage` after every cell worth a line."""
    from papermill.engines import NBClientEngine, papermill_engines

    class Reporting(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            complete = nb_man.cell_complete

            def report(cell: Any, cell_index: int | None = None, **others: Any) -> None:
                complete(cell, cell_index, **others)
                if (stage := stage_of(nb_man.nb.cells, cell)) is not None:
                    on_stage(stage)

            nb_man.cell_complete = report
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    papermill_engines.register(ENGINE, Reporting)
    return ENGINE


def stage_of(cells: Sequence[Any], cell: Any) -> Stage | None:
    """A cell's stage; None for parameters, and for one that printed nothing and took no time."""
    tags = cell.metadata.get("tags", [])
    if cell.cell_type != "code" or "parameters" in tags or "injected-parameters" in tags:
        return None
    seconds = (cell.metadata.get("papermill") or {}).get("duration") or 0.0
    lines = _lines(cell)
    if not lines and seconds < WORTH_A_LINE_S:
        return None
    return Stage(_heading(cells, cell), lines, seconds)


def _heading(cells: Sequence[Any], cell: Any) -> str:
    """The last heading above a cell, without its marks."""
    title = ""
    for other in cells:
        if other is cell:
            break
        if other.cell_type == "markdown":
            headings = [line for line in other.source.splitlines() if line.startswith("#")]
            title = headings[-1].lstrip("# ") if headings else title
    return title


def _lines(cell: Any) -> tuple[str, ...]:
    """What the cell printed; else its result as text, unless that only names an object."""
    streams = [output for output in cell.outputs if output.output_type == "stream"]
    printed = "".join(output.text for output in streams if output.name == "stdout").rstrip()
    if printed:
        return tuple(printed.splitlines()[:MAX_LINES])
    results = [output.data for output in cell.outputs if output.output_type == "execute_result"]
    texts = [data.get("text/plain", "") for data in results]
    return tuple(
        text for text in texts[:1] if text and not text.startswith("<") and "\n" not in text
    )
