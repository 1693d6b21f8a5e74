"""What an export wrote and how it was checked; what each target can do on this machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from .record import Record
from .table import TableRecord
from .text import readable_bytes, readable_ms, readable_ratio


class ExportReport(Record):
    """One exported file: its size, its parity with the live model, its latency beside it."""

    target: str
    title: str = ""
    model: str
    path: str
    precision: str
    bytes: int
    convert_s: float
    opset: int | None = Field(default=None, description="of an ONNX file, read back from it")
    runs_here: bool = Field(description="whether it was run on this machine")
    error: float | None = Field(
        default=None, description="relative L2 error against the live model; None if it did not run"
    )
    max_error: float | None = Field(default=None, description="largest absolute difference")
    tolerance: float | None = None
    compared: tuple[str, ...] = Field(
        default=(), description="the inputs on which the outputs were compared"
    )
    latency_ms: float | None = None
    live_ms: float | None = Field(
        default=None, description="of the live model, timed in turn with it"
    )
    speed_up: float | None = None
    interval: tuple[float, float] | None = Field(
        default=None, description="the 95 % interval of the speed-up"
    )
    threads: int | None = None
    not_verified: str = Field(
        default="", description="why it was not run, if it was not, and what that needs"
    )
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
            "ms": "–" if self.latency_ms is None else readable_ms(self.latency_ms),
            "live ms": "–" if self.live_ms is None else readable_ms(self.live_ms),
            "×": "–" if self.speed_up is None else readable_ratio(self.speed_up),
            "note": self.not_verified or "; ".join(self.notes),
        }


class ExporterRow(Record):
    """One target on this machine: what it did with a model, or what it needs."""

    target: str
    title: str
    extra: str = ""
    obstacle: str = Field(default="", description="why it cannot convert here; '' where it can")
    refused: str = Field(default="", description="why it refused this model")
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

    text_columns = ("target", "note", "model", "refused or not verified")

    model: str
    machine: str = ""
    rows: tuple[ExporterRow, ...] = ()

    @property
    def title(self) -> str:
        """The model and the machine, in a line."""
        return f"{self.model} exported on {self.machine}" if self.machine else self.model

    def table(self) -> list[dict[str, str]]:
        """A row per target."""
        return [_exporter_row(row) for row in self.rows]


def _exporter_row(row: ExporterRow) -> dict[str, str]:
    report = row.report
    ran = report is not None and report.error is not None
    return {
        "target": row.title,
        "converted here": "yes" if row.converts_here else "no",
        "run here": "yes" if row.runs_here else "no",
        "error": f"{report.error:.1e}" if report and ran else "–",
        "size": readable_bytes(report.bytes) if report else "–",
        "ms": readable_ms(report.latency_ms) if report and report.latency_ms else "–",
        "refused or not verified": row.obstacle
        or row.refused
        or (report.not_verified if report else ""),
    }
