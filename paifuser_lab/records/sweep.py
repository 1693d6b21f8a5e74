"""The results of running one notebook with many parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Record, TableRecord, frame_of
from .text import counted, readable_bytes, readable_count

if TYPE_CHECKING:
    import pandas

Value = bool | int | float | str | None


class SweepRun(Record):
    """One run: its parameters, and the figures of its report."""

    name: str
    parameters: dict[str, Value]
    figures: dict[str, float] = {}
    note: str = ""
    failure: str | None = None
    seconds: float | None = None  # None for a run of an earlier sweep

    @property
    def sentence(self) -> str:
        """Its parameters, its first figures and its seconds, in a line."""
        figures = [
            f"{name.replace('_', ' ')} {_readable(name, figure)}"
            for name, figure in list(self.figures.items())[:3]
        ]
        took = [] if self.seconds is None else [f"{self.seconds:.1f} s"]
        return " · ".join([self.name, *figures, *filter(None, [self.failure or self.note]), *took])


class Sweep(TableRecord):
    """Every run of a sweep, the best first."""

    text_columns = ("note",)

    notebook: str
    jobs: int
    runs: tuple[SweepRun, ...]
    sorted_by: str | None = None
    is_interrupted: bool = False

    @property
    def failed(self) -> tuple[SweepRun, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.failure)

    @property
    def title(self) -> str:
        """The notebook, the number of runs and a warning about disturbed latencies, in a line."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        beside = (
            f" · {self.jobs} at a time, so latencies disturbed each other" if self.jobs > 1 else ""
        )
        stopped = " · stopped early" if self.is_interrupted else ""
        order = f" · by {self.sorted_by}" if self.sorted_by else ""
        return f"{self.notebook}: {counted(len(self.runs), 'run')}{failed}{order}{beside}{stopped}"

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per run."""
        return frame_of(
            (
                {"run": run.name, **run.parameters, **run.figures, "note": run.failure or run.note}
                for run in self.runs
            ),
            "run",
        )

    def table(self) -> list[dict[str, str]]:
        """A row per run: its parameters, then its figures."""
        parameters = dict.fromkeys(name for run in self.runs for name in run.parameters)
        figures = dict.fromkeys(
            name for run in self.runs for name in run.figures if name not in parameters
        )
        return [
            {
                **{name: str(run.parameters.get(name, "–")) for name in parameters},
                **{
                    name.replace("_", " "): _readable(name, run.figures.get(name))
                    for name in figures
                },
                "note": run.failure or run.note,
            }
            for run in self.runs
        ] or [{"note": "nothing has been run"}]

    def to_markdown(self) -> str:
        """The title and the table as Markdown."""
        rows = self.table()
        cells = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in cells
        ]
        return "\n".join([self.title, "", *lines]) + "\n"


def _readable(name: str, figure: float | None) -> str:
    if figure is None:
        return "–"
    if name.endswith("_bytes"):
        return readable_bytes(int(figure))
    return readable_count(figure) if name in ("parameters", "flops") else f"{figure:.4g}"
