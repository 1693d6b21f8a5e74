"""Latency against throughput of dynamic batching."""

from __future__ import annotations

from pydantic import Field

from .record import Record
from .table import TableRecord


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

    call: str
    points: tuple[BatchingPoint, ...] = Field(min_length=1)

    @property
    def title(self) -> str:
        """The call that is batched."""
        return f"Dynamic batching of {self.call}"

    @property
    def rules(self) -> dict[str, tuple[BatchingPoint, ...]]:
        """The points of each rule, in order of what was offered."""
        names = dict.fromkeys(point.rule for point in self.points)
        ordered = sorted(self.points, key=lambda point: point.offered_per_s)
        return {name: tuple(p for p in ordered if p.rule == name) for name in names}

    def table(self) -> list[dict[str, str]]:
        """A row for each point."""
        return [
            {
                "rule": point.rule,
                "offered /s": f"{point.offered_per_s:.0f}",
                "answered /s": f"{point.answered_per_s:.0f}",
                "p50 ms": f"{point.p50_ms:.1f}",
                "p95 ms": f"{point.p95_ms:.1f}",
                "mean batch": f"{point.mean_batch:.1f}",
            }
            for point in self.points
        ]
