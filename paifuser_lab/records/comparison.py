"""A baseline and its variants timed in turn; their trade-off of metric against latency and size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pydantic import ConfigDict, Field

from ..errors import MeasureError
from .quality import Quality, Verdict, readable_interval, sign, verdict
from .record import AboutWorkload, Frame, Record, TableRecord, row_of
from .table import Table
from .text import (
    counted,
    or_dash,
    readable_bytes,
    readable_count,
    readable_ms,
    readable_range,
    without_empty,
)


class Bargain(Record):
    """One variant: its latency, its size, and its metric or closeness (`worth`)."""

    name: str
    latency_ms: float
    size_bytes: int
    worth: float


class TradeOff(Record):
    """A comparison's rows by latency, size and metric; without one, by the output's closeness."""

    title: str
    unit: str  # what `worth` is: the metric's name, or closeness, 1 − the output error
    smaller_is_better: bool = False
    bargains: tuple[Bargain, ...] = Field(min_length=1)

    def unbeaten(self, axis: str) -> tuple[Bargain, ...]:
        """The Pareto frontier of worth against `latency_ms` or `size_bytes`, the cheapest first."""
        frontier: list[Bargain] = []
        sign = -1 if self.smaller_is_better else 1
        for row in sorted(self.bargains, key=lambda row: (getattr(row, axis), -sign * row.worth)):
            if not frontier or sign * row.worth > sign * frontier[-1].worth:
                frontier.append(row)
        return tuple(frontier)

    def table(self) -> list[dict[str, str]]:
        """A row per variant, in the order of the comparison."""
        axes = {"latency": "latency_ms", "size": "size_bytes"}
        best = {unit: {row.name for row in self.unbeaten(axis)} for unit, axis in axes.items()}
        return [
            {
                "name": row.name,
                "latency ms": readable_ms(row.latency_ms),
                "weights": readable_bytes(row.size_bytes),
                self.unit: f"{row.worth:.4f}",
                "note": " and ".join(
                    f"unbeaten for its {unit}" for unit in axes if row.name in best[unit]
                ),
            }
            for row in self.bargains
        ]

    def as_table(self) -> Table:
        """The rows, those that no other beats in bold."""
        return Table((self.title,), self.table(), ("name", "note"), lambda row: bool(row["note"]))

    def __str__(self) -> str:
        return str(self.as_table())

    def _repr_html_(self) -> str:
        return self.as_table()._repr_html_()


class StepReport(Record):
    """What one step of a recipe changed, and the output error after it."""

    step: str
    seconds: float
    relative_error: float | None  # None without inputs to measure it on
    notes: tuple[str, ...] = ()


DETAILS = ("cpu ms", "build s", "pays after calls")  # for which a page has no room


class Measurement(Record):
    """One row of a comparison: the baseline or a variant."""

    name: str
    steps: tuple[str, ...] = ()
    threads: int
    rounds: int | None = None  # if fewer than those of the comparison
    latency_ms: float | None = None
    best_ms: float | None = None
    spread_ms: tuple[float, float] | None = None
    cpu_ms: float | None = None
    # memory pages that a call faults in; None if they are not counted
    page_faults: float | None = None
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    peak_bytes: int | None = None
    size_bytes: int | None = None
    parameters: int | None = None
    flops: int | None = None
    relative_error: float | None = None
    max_error: float | None = None
    metric: float | None = None
    build_s: float | None = None
    weights_hash: str | None = None
    notes: tuple[str, ...] = ()
    refused: str | None = None  # why it is past its recipe's limit, and by which layers
    failure: str | None = None

    def taking(self, latency_ms: float) -> Measurement:
        """The row with all its times scaled to a latency."""
        if self.latency_ms is None or math.isclose(self.latency_ms, latency_ms):
            return self
        scale = latency_ms / self.latency_ms
        times: dict[str, Any] = {"latency_ms": latency_ms}
        if self.spread_ms is not None:
            times["spread_ms"] = tuple(ms * scale for ms in self.spread_ms)
        for name in ("best_ms", "cpu_ms"):
            if (ms := getattr(self, name)) is not None:
                times[name] = ms * scale
        return self.model_copy(update=times)


class Comparison(TableRecord):
    """A baseline and its variants, timed in turn on one machine."""

    text_columns = ("name", "recipe", "note")
    row_key = "name"

    workload: AboutWorkload
    machine: str
    baseline: str
    metric_name: str | None = None
    smaller_is_better: bool = False  # of the metric
    rounds: int
    is_interrupted: bool = False
    quality: Quality | None = None  # how quiet the machine was; None if nobody recorded it
    rows: tuple[Measurement, ...] = Field(min_length=1)

    def __getitem__(self, name: str) -> Measurement:
        return row_of(self.rows, "name", name)

    def verdict(self, row: Measurement) -> Verdict:
        """Whether a row is faster than the baseline, if that can be told."""
        if row.name == self.baseline:
            return verdict(None, row.latency_ms, None, None)
        before = self[self.baseline].latency_ms
        return verdict(before, row.latency_ms, row.speedup, row.speedup_interval, self.quality)

    def pays_after(self, row: Measurement) -> int | None:
        """The calls in which a faster row saves the time that it took to build."""
        before = self[self.baseline].latency_ms
        if not (before and row.build_s and row.speedup) or self.verdict(row).word != "faster":
            return None
        return math.ceil(1e3 * row.build_s / (before - before / row.speedup))

    def with_baseline(self, latency_ms: float) -> Comparison:
        """The comparison scaled to this latency of the baseline; itself if it has that already."""
        rows = tuple(row.taking(latency_ms / (row.speedup or 1.0)) for row in self.rows)
        is_same = all(new is old for new, old in zip(rows, self.rows, strict=True))
        return self if is_same else self.model_copy(update={"rows": rows})

    @property
    def is_share(self) -> bool:
        """Whether the metric can be a share: the larger the better, and never above 1."""
        return not self.smaller_is_better and not any((row.metric or 0) > 1 for row in self.rows)

    @property
    def best(self) -> Measurement:
        """The fastest row within its limit, or the baseline; how sure that is says `verdict`."""
        return max(
            (row for row in self.rows if row.speedup is not None and not row.refused),
            key=lambda row: row.speedup or 0.0,
        )

    @property
    def trade_off(self) -> TradeOff:
        """Each row's metric, or closeness, against latency and size; of baselines the reference."""
        rows = [
            row
            for row in self.rows
            if row.latency_ms is not None
            and row.size_bytes is not None
            and (row.name == self.baseline or not row.name.startswith("baseline · "))
        ]
        metrics = [row.metric for row in rows if row.metric is not None]
        has_metric = len(metrics) == len(rows) and any(map(math.isfinite, metrics))
        bargains = [_bargain(row, has_metric=has_metric) for row in rows]
        placed = tuple(row for row in bargains if math.isfinite(row.worth))
        if not placed:
            raise MeasureError(
                f"No row of the comparison of {self.workload} has a latency, a size and a finite "
                "metric or output error; let it run to its end."
            )
        return TradeOff(
            title=self.title,
            unit=(self.metric_name or "metric") if has_metric else "closeness",
            smaller_is_better=has_metric and self.smaller_is_better,
            bargains=placed,
        )

    @property
    def frame(self) -> Frame:
        return super().frame.rename(columns={"relative_error": "output_error"})

    def table(self) -> list[dict[str, str]]:
        """The rows as text; empty columns and nearly equal counts are left out."""
        rows = [_readable(row, self) for row in self.rows]
        same = {
            "parameters": _hardly_differ(row.parameters for row in self.rows),
            "FLOPs": _hardly_differ(row.flops for row in self.rows),
        }
        kept = [key for key in rows[0] if not same.get(key)]
        return without_empty([{key: row[key] for key in kept} for row in rows])

    @property
    def title(self) -> str:
        stopped = ", stopped early" if self.is_interrupted else ""
        return f"{self.workload} on {self.machine} · {self.rounds} rounds in turn{stopped}"

    def _repr_html_(self) -> str:
        return self.as_table(*self.captions).without(*DETAILS)._repr_html_()

    @property
    def captions(self) -> list[str]:
        caution = self.quality.sentence if self.quality else ""
        return [self.title, *([f"{caution[0].upper()}{caution[1:]}."] if caution else [])]


def _bargain(row: Measurement, *, has_metric: bool) -> Bargain:
    worth = (row.metric or 0.0) if has_metric else 1 - (row.relative_error or 0.0)
    return Bargain(
        name=row.name, latency_ms=row.latency_ms or 0.0, size_bytes=row.size_bytes or 0, worth=worth
    )


def _hardly_differ(counts: Iterable[int | None]) -> bool:
    known = [count for count in counts if count is not None]
    return not known or max(known) <= 1.02 * min(known)


def _readable(row: Measurement, comparison: Comparison) -> dict[str, str]:
    error = None if row.name == comparison.baseline else row.relative_error
    recipe = " → ".join(row.steps)
    return {
        "name": row.name,
        "recipe": "" if row.name == recipe else recipe,
        "threads": str(row.threads),
        "latency ms": readable_ms(row.latency_ms),
        "middle half": readable_range(row.spread_ms),
        "speed-up": _speedup(row, comparison),
        "cpu ms": readable_ms(row.cpu_ms),
        "peak": readable_bytes(row.peak_bytes),
        "weights": readable_bytes(row.size_bytes),
        "parameters": readable_count(row.parameters),
        "FLOPs": readable_count(row.flops),
        "output error": or_dash(error, "{:.1e}" if error else "{:.0f}"),
        comparison.metric_name or "metric": or_dash(row.metric, "{:.4f}"),
        "build s": or_dash(row.build_s, "{:.1f}"),
        "pays after calls": or_dash(comparison.pays_after(row), "{:,}"),
        "note": row.failure or _note(row, comparison.rounds),
    }


def _note(row: Measurement, rounds: int) -> str:
    if row.refused:
        return f"refused: {row.refused}"
    done = row.rounds or rounds
    return f"in {counted(done, 'round')} only" if done < rounds else ""


def _speedup(row: Measurement, comparison: Comparison) -> str:
    if row.speedup is None:
        return "–"
    if row.name == comparison.baseline or row.speedup_interval is None:
        return "1" if row.name == comparison.baseline else f"{row.speedup:.2f} ×"
    rough = sign(comparison.verdict(row).word, comparison.quality)
    return f"{rough}{row.speedup:.2f} × ({readable_interval(row.speedup_interval)})"


class Limit(Record):
    """The largest loss of the metric; without labelled data, the largest output error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    metric_drop: float = Field(default=0.01, ge=0)  # 0.01 is one point of accuracy
    output_error: float = Field(default=0.1, gt=0)  # relative L2 error
