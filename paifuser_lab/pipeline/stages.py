"""Report what each cell of a notebook did, while papermill runs it. Built on papermill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
            return "\n".join([f"{self.title} · {self.seconds:.1f} s", *_indented(self.lines)])
        return " · ".join(part for part in (self.title, first, f"{self.seconds:.1f} s") if part)


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


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
