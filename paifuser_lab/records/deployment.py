"""What a deploy folder holds: each target's file and check, refusals, hashes; the first layer whose
values differ.
"""

from __future__ import annotations

from pydantic import Field

from .export import ExporterRow
from .record import Record
from .table import TableRecord
from .text import counted, readable_bytes
from .workload_name import AboutWorkload


class LayerDifference(Record):
    """The first layer of an exported model whose output is past a tolerance, by bisection."""

    target: str
    layer: str = Field(description="'' if no layer is, and only the output itself")
    operator: str = ""
    error: float | None = Field(
        default=None, description="relative L2 error of its output; None where it is not finite"
    )
    tolerance: float
    before: str = Field(default="", description="the compared layer before it, within tolerance")
    before_error: float | None = None
    compared: int = Field(description="how many layers could be compared")
    probes: tuple[tuple[str, float | None], ...] = Field(
        default=(), description="each compared layer of the bisection, and its error"
    )

    @property
    def sentence(self) -> str:
        """Where the difference begins, in a sentence."""
        if not self.compared:
            return "No layer of the file could be compared: it does not say which layers it has."
        if not self.layer:
            return (
                f"All {self.compared} compared layers are within {self.tolerance:.0e}; what "
                f"follows '{self.before}' differs."
            )
        error = "is not finite" if self.error is None else f"differs by {self.error:.1e}"
        first = f"The first layer past {self.tolerance:.0e} is '{self.layer}' ({self.operator})"
        if not self.before:
            return f"{first}: its output {error}, and no layer before it was compared."
        return f"{first}: its output {error}, that of '{self.before}' before it by " + (
            f"{self.before_error or 0:.1e}."
        )


class DeployedFile(Record):
    """A file of a deploy folder."""

    name: str = Field(description="its path in the folder")
    bytes: int
    sha256: str


class Deployment(TableRecord):
    """A deploy folder: what each target wrote or why it refused, and every file with its hash."""

    text_columns = ("target", "checked", "note")

    workload: AboutWorkload
    recipe: str
    machine: str
    folder: str = Field(default="", description="'' where none was written")
    rows: tuple[ExporterRow, ...] = ()
    difference: LayerDifference | None = None
    files: tuple[DeployedFile, ...] = ()
    is_done: bool = True

    @property
    def title(self) -> str:
        """The model, its recipe and the machine, in a line."""
        return f"{self.workload} · {self.recipe} exported on {self.machine}"

    @property
    def refused(self) -> tuple[ExporterRow, ...]:
        """The targets that wrote nothing."""
        return tuple(row for row in self.rows if row.obstacle or row.refused)

    @property
    def sentence(self) -> str:
        """What was written, and what was refused."""
        if not self.folder:
            written = "Nothing was written."
        else:
            total = readable_bytes(sum(file.bytes for file in self.files))
            written = f"{counted(len(self.files), 'file')} of {total} in {self.folder}."
        names = ", ".join(row.title for row in self.refused)
        return f"{written} Refused: {names}." if names else written

    def table(self) -> list[dict[str, str]]:
        """A row per target."""
        return [_row(row) for row in self.rows]

    @property
    def captions(self) -> tuple[str, ...]:
        """The title, what was written, and the first layer that differs."""
        difference = (self.difference.sentence,) if self.difference else ()
        return (self.title, self.sentence, *difference)

    def __repr__(self) -> str:
        return f"Deployment({self.workload}: {self.sentence})"


def _row(row: ExporterRow) -> dict[str, str]:
    """A target's row: its report, or why there is none."""
    report = row.report
    if report is None:
        empty = dict.fromkeys(("precision", "opset", "size", "error", "ms", "live ms"), "–")
        why = f"refused: {row.refused}" if row.refused else row.obstacle
        return {"target": row.title, "checked": "refused", **empty, "note": why}
    columns = report.row()
    checked = "run here, compared" if report.runs_here else "converted, not run"
    shown = ("precision", "opset", "size", "error", "ms", "live ms", "note")
    return {"target": row.title, "checked": checked, **{key: columns[key] for key in shown}}
