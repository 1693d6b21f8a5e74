"""What an export wrote and how it was checked; what each target does here; a deploy folder."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from .record import AboutWorkload, Record, TableRecord
from .table import Columns
from .text import counted, or_dash, readable_bytes, readable_ms, readable_ratio


class ExportReport(Record):
    """One exported file: its size, its parity with the live model, its latency beside it."""

    target: str
    title: str = ""
    model: str
    path: str
    precision: str
    bytes: int
    convert_s: float
    opset: int | None = None  # of an ONNX file, read back from it
    runs_here: bool  # whether it was run on this machine
    error: float | None = None  # relative L2 error against the live model; None if it did not run
    max_error: float | None = None  # largest absolute difference
    tolerance: float | None = None
    compared: tuple[str, ...] = ()  # the inputs on which the outputs were compared
    latency_ms: float | None = None
    live_ms: float | None = None  # of the live model, timed in turn with it
    speed_up: float | None = None
    interval: tuple[float, float] | None = None  # the 95 % interval of the speed-up
    threads: int | None = None
    not_verified: str = ""  # why it was not run, if it was not, and what that needs
    notes: tuple[str, ...] = ()
    weights_hash: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        """The path of the artefact."""
        return Path(self.path)

    @property
    def sentence(self) -> str:
        """What was written and what is known of it, in one sentence."""
        opset = f", opset {self.opset}" if self.opset else ""
        written = f"{self.path} ({self.precision}{opset}, {readable_bytes(self.bytes)})"
        if not self.runs_here:
            return f"{written}: converted, not run; {self.not_verified}"
        return f"{written}: relative error {self.error:.1e} on {' and '.join(self.compared)}."

    def __str__(self) -> str:
        return self.sentence

    def row(self) -> dict[str, str]:
        """The report as a row of a table."""
        return {
            "target": self.title or self.target,
            "precision": self.precision,
            "opset": str(self.opset or "–"),
            "size": readable_bytes(self.bytes),
            "seconds": f"{self.convert_s:.1f}",
            "error": "not run" if self.error is None else f"{self.error:.1e}",
            "ms": readable_ms(self.latency_ms),
            "live ms": readable_ms(self.live_ms),
            "×": readable_ratio(self.speed_up),
            "note": self.not_verified or "; ".join(self.notes),
        }


class ExporterRow(Record):
    """One target on this machine: what it did with a model, or what it needs."""

    target: str
    title: str
    extra: str = ""
    obstacle: str = ""  # why it cannot convert here; '' where it can
    refused: str = ""  # why it refused this model
    report: ExportReport | None = None

    @property
    def converts_here(self) -> bool:
        """Whether it has converted the model on this machine."""
        return self.report is not None

    @property
    def runs_here(self) -> bool:
        """Whether its file was run on this machine."""
        return self.report is not None and self.report.runs_here


class Exporters(TableRecord):
    """The targets of export, each tried with one model on this machine."""

    columns: ClassVar[Columns] = {
        "target": "title",
        "converted here": lambda row: "yes" if row.converts_here else "no",
        "run here": lambda row: "yes" if row.runs_here else "no",
        "error": lambda row: or_dash(row.report and row.report.error, "{:.1e}"),
        "size": lambda row: readable_bytes(row.report and row.report.bytes),
        "ms": lambda row: readable_ms(row.report and row.report.latency_ms),
        "refused or not verified": lambda row: (
            row.obstacle or row.refused or (row.report.not_verified if row.report else "")
        ),
    }
    text_columns = ("target", "refused or not verified")

    model: str
    machine: str = ""
    rows: tuple[ExporterRow, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.model} exported on {self.machine}" if self.machine else self.model


class LayerDifference(Record):
    """The first layer of an exported model whose output is past a tolerance, by bisection."""

    target: str
    layer: str  # '' if no layer is, and only the output itself
    operator: str = ""
    error: float | None = None  # relative L2 error of its output; None where it is not finite
    tolerance: float
    before: str = ""  # the compared layer before it, within tolerance
    before_error: float | None = None
    compared: int  # how many layers could be compared
    # each compared layer of the bisection, and its error
    probes: tuple[tuple[str, float | None], ...] = ()

    def table(self) -> list[dict[str, str]]:
        """A row for each compared layer, in the order of the bisection."""
        return [
            {
                "layer": layer,
                "differs by": "not finite" if error is None else f"{error:.1e}",
                "": "past" if error is None or error > self.tolerance else "within",
            }
            for layer, error in self.probes
        ]

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

    name: str  # its path in the folder
    bytes: int
    sha256: str


class Deployment(TableRecord):
    """A deploy folder: what each target wrote or why it refused, and every file with its hash."""

    text_columns = ("target", "checked", "note")

    workload: AboutWorkload
    recipe: str
    machine: str
    folder: str = ""  # '' where none was written
    rows: tuple[ExporterRow, ...] = ()
    difference: LayerDifference | None = None
    files: tuple[DeployedFile, ...] = ()
    is_done: bool = True

    @property
    def title(self) -> str:
        return f"{self.workload} · {self.recipe} exported on {self.machine}"

    @property
    def refused(self) -> tuple[ExporterRow, ...]:
        """The targets that wrote nothing."""
        return tuple(row for row in self.rows if row.obstacle or row.refused)

    @property
    def sentence(self) -> str:
        if not self.folder:
            written = "Nothing was written."
        else:
            total = readable_bytes(sum(file.bytes for file in self.files))
            written = f"{counted(len(self.files), 'file')} of {total} in {self.folder}."
        names = ", ".join(row.title for row in self.refused)
        return f"{written} Refused: {names}." if names else written

    def table(self) -> list[dict[str, str]]:
        return [_row(row) for row in self.rows]

    @property
    def captions(self) -> tuple[str, ...]:
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
