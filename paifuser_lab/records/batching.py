"""Latency, throughput and memory by batch size, and of dynamic batching."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from .record import AboutWorkload, Record, TableRecord, row_of
from .table import Columns
from .text import (
    counted,
    or_dash,
    readable_bytes,
    readable_ms,
    readable_range,
    readable_rate,
    without_empty,
)


class BatchRow(Record):
    """The measurements of one batch size, or why it did not run."""

    batch: int = Field(ge=1)
    latency_ms: float | None = None
    spread_ms: tuple[float, float] | None = None
    throughput_per_s: float | None = None
    peak_bytes: int | None = None
    predicted_bytes: int | None = None
    utilisation: float | None = None
    is_timed_in_turn: bool = False
    failure: str | None = None


class BatchSweep(TableRecord):
    """Throughput, latency and memory by batch; the smallest batch that reaches the plateau."""

    text_columns = ("note",)
    row_key = "batch"

    workload: AboutWorkload
    machine: str
    threads: int
    memory_limit_bytes: int
    plateau: float = Field(gt=0, le=1)
    rows: tuple[BatchRow, ...] = Field(min_length=1)
    knee: int
    reason: str
    is_interrupted: bool = False

    def __getitem__(self, batch: int) -> BatchRow:
        return row_of(self.rows, "batch", batch, "row for a batch of")

    @property
    def ran(self) -> tuple[BatchRow, ...]:
        """The rows that were measured."""
        return tuple(row for row in self.rows if row.failure is None)

    @property
    def best(self) -> BatchRow:
        """The row with the highest throughput, among those timed in turn if there are any."""
        rows = [row for row in self.ran if row.is_timed_in_turn] or self.ran
        return max(rows, key=lambda row: row.throughput_per_s or 0.0)

    @property
    def title(self) -> str:
        stopped = " · stopped early" if self.is_interrupted else ""
        return f"{self.workload} on {self.machine} · {counted(self.threads, 'thread')}{stopped}"

    def table(self) -> list[dict[str, str]]:
        rows = [self._readable(row) for row in self.rows]
        return without_empty(rows)

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.reason,)

    def is_bold(self, row: dict[str, str]) -> bool:
        return row["batch"] == str(self.knee)

    def _readable(self, row: BatchRow) -> dict[str, str]:
        return {
            "batch": str(row.batch),
            "latency ms": readable_ms(row.latency_ms),
            "middle half": readable_range(row.spread_ms),
            "per second": readable_rate(row.throughput_per_s),
            "in turn": "yes" if row.is_timed_in_turn else "",
            "memory": readable_bytes(row.peak_bytes),
            "predicted": readable_bytes(row.predicted_bytes),
            "utilisation": or_dash(row.utilisation, "{:.0%}"),
            "note": row.failure or self._remark(row),
        }

    def _remark(self, row: BatchRow) -> str:
        words = (
            ("the knee", row.batch == self.knee),
            ("highest throughput", row.batch == self.best.batch),
        )
        return ", ".join(word for word, applies in words if applies)


class BatchingPoint(Record):
    """One rule at one rate of arrival."""

    count: int = Field(ge=1)
    delay_ms: float | None
    offered_per_s: float
    answered_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_batch: float

    @property
    def rule(self) -> str:
        """The rule in words."""
        wait = "until full" if self.delay_ms is None else f"{self.delay_ms:g} ms"
        return "one at a time" if self.count == 1 else f"up to {self.count}, {wait}"


class BatchingCurve(TableRecord):
    """What a rule of batching costs in latency and brings in throughput."""

    columns: ClassVar[Columns] = {
        "rule": "rule",
        "offered /s": lambda point: f"{point.offered_per_s:.0f}",
        "answered /s": lambda point: f"{point.answered_per_s:.0f}",
        "p50 ms": lambda point: f"{point.p50_ms:.1f}",
        "p95 ms": lambda point: f"{point.p95_ms:.1f}",
        "mean batch": lambda point: f"{point.mean_batch:.1f}",
    }
    row_field = "points"

    call: str
    points: tuple[BatchingPoint, ...] = Field(min_length=1)

    @property
    def title(self) -> str:
        return f"Dynamic batching of {self.call}"

    @property
    def rules(self) -> dict[str, tuple[BatchingPoint, ...]]:
        """The points of each rule, in order of what was offered."""
        names = dict.fromkeys(point.rule for point in self.points)
        ordered = sorted(self.points, key=lambda point: point.offered_per_s)
        return {name: tuple(p for p in ordered if p.rule == name) for name in names}
