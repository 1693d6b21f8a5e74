"""What a search for a faster or smaller model tried: each candidate measured, ranked, explained."""

from __future__ import annotations

from typing import Any, Literal, Self

from .quality import Quality, times
from .record import AboutWorkload, Record, TableRecord, row_of
from .text import counted, or_dash, readable_bytes, readable_ms, readable_rate

SearchGoal = Literal["latency", "throughput", "size", "memory"]
CandidateStatus = Literal["measured", "outside the limits", "lost", "refused"]


class Candidate(Record):
    """One change of the model that was tried, with what it does and what it costs."""

    label: str
    steps: tuple[dict[str, dict[str, Any]], ...]
    why: str
    status: CandidateStatus
    rank: int | None = None  # from 1, best first; None outside the limits, lost or refused
    reason: str = ""  # which limit shuts it out, or why it lost or was refused
    allow: dict[str, Any] | None = None  # the options of the search that would let it in
    latency_ms: float | None = None
    before_ms: float | None = None  # of the unchanged model in the same rounds
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    word: str = ""
    tone: str = "even"
    sentence: str = ""
    per_second: float | None = None
    relative_error: float | None = None
    metric: float | None = None
    metric_lost: float | None = None
    size_bytes: int | None = None
    peak_bytes: int | None = None
    rounds: int = 0
    at_s: float | None = None  # the seconds of the search after which it was measured
    contributions: tuple[float | None, ...] = ()  # how many times worse without each step
    predicted: float | None = None  # the speed-up that was expected before it was measured

    @property
    def loss(self) -> float | None:
        """The loss of the metric; without labelled data, the relative error of the output."""
        return self.metric_lost if self.metric_lost is not None else self.relative_error

    def with_baseline(self, latency_ms: float) -> Candidate:
        """The candidate with this latency of the unchanged model, its own by its speed-up."""
        if self.speedup is None or self.before_ms == latency_ms:
            return self
        now, rate = latency_ms / self.speedup, self.per_second
        return self.model_copy(
            update={
                "before_ms": latency_ms,
                "latency_ms": now,
                "per_second": rate and rate * (self.latency_ms or now) / now,
                "sentence": f"{times(latency_ms, self.speedup)} · {self.effect}",
            }
        )

    @property
    def effect(self) -> str:
        """The speed-up in words, without the latencies that it was measured from."""
        return self.sentence.partition(" · ")[2]

    def value(self, goal: SearchGoal) -> float | None:
        """What the goal minimises; None where it is not known."""
        if goal == "size":
            return self.size_bytes
        if goal == "memory":
            return self.peak_bytes
        return None if self.speedup is None else 1 / self.speedup


class Candidates(TableRecord):
    """The candidates of a search: those within the limits best first, then the others."""

    text_columns = ("change", "status", "why", "effect")

    workload: AboutWorkload
    goal: SearchGoal
    metric_drop: float
    may_train: bool
    seconds: float
    took_s: float
    machine: str
    batch: int | None = None  # that was timed, where it is not that of the example inputs
    metric_name: str | None = None
    smaller_is_better: bool = False  # of the metric
    planned: int  # how many candidates there are to measure
    is_done: bool = False
    is_interrupted: bool = False
    note: str = ""  # what was not measured, or took longer than the seconds
    quality: Quality | None = None
    baseline_ms: float | None = None
    baseline_size_bytes: int | None = None
    baseline_peak_bytes: int | None = None
    rows: tuple[Candidate, ...] = ()

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """The candidates within the limits, best first."""
        return tuple(row for row in self.rows if row.rank is not None)

    @property
    def first(self) -> Candidate | None:
        """The first of the ranked; None while nothing is ranked."""
        return self.ranked[0] if self.ranked else None

    @property
    def is_share(self) -> bool:
        """Whether the metric can be a share: the larger the better, and never above 1."""
        return not self.smaller_is_better and not any((row.metric or 0) > 1 for row in self.rows)

    def with_baseline(self, latency_ms: float) -> Self:
        """The candidates scaled to this latency of the unchanged model; or itself."""
        rows = tuple(row.with_baseline(latency_ms) for row in self.rows)
        is_same = all(new is old for new, old in zip(rows, self.rows, strict=True))
        if is_same and self.baseline_ms == latency_ms:
            return self
        return self.model_copy(update={"rows": rows, "baseline_ms": latency_ms})

    def __getitem__(self, label: str) -> Candidate:
        return row_of(self.rows, "label", label, "candidate")

    @property
    def batches(self) -> str:
        """', batches of 8' where these were timed instead of the example inputs; else ''."""
        return f", batches of {self.batch}" if self.batch is not None else ""

    @property
    def title(self) -> str:
        goal = f"{self.goal}{self.batches}"
        stopped = ", stopped" if self.is_interrupted else ""
        return (
            f"{self.workload} on {self.machine} · {goal}: {len(self.rows)} of "
            f"{counted(self.planned, 'candidate')} tried in {self.took_s:.0f} s{stopped}"
        )

    def table(self) -> list[dict[str, str]]:
        has_rate = self.goal == "throughput"
        return [
            {
                "change": row.label if row.rank is None else f"{row.rank}. {row.label}",
                "ms": readable_ms(row.latency_ms),
                **({"per second": readable_rate(row.per_second)} if has_rate else {}),
                "effect": row.effect or "–",
                "output error": or_dash(row.relative_error, "{:.1e}"),
                self.metric_name or "metric": or_dash(row.metric, "{:.4f}"),
                "size": readable_bytes(row.size_bytes),
                "status": row.status,
                "why": row.reason or row.why,
            }
            for row in self.rows
        ]

    @property
    def captions(self) -> list[str]:
        caution = self.quality.sentence if self.quality else ""
        return [line for line in (self.title, self.note, caution) if line]
