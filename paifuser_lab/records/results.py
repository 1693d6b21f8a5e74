"""Everything tried in a session, a row per recipe; and the runs of a parameter sweep."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ..errors import MeasureError
from .comparison import Bargain, TradeOff
from .quality import Quality, Verdict, is_usable, readable_interval, sign, verdict, worse
from .record import AboutWorkload, Frame, Record, TableRecord, frame_of
from .text import counted, or_dash, readable_bytes, readable_count, readable_ms, readable_ratio

Range = tuple[float, float]
MOST_NUMBERS = 10  # of rows, that a sentence lists


class ResultRow(Record):
    """One recipe: how fast, large and accurate the model was with it, or why it failed."""

    number: int  # 0 is the unchanged model; kept when it is measured again
    label: str
    steps: tuple[dict[str, Any], ...] = ()
    step_labels: tuple[str, ...] = ()
    latency_ms: float | None = None
    before_ms: float | None = None  # the baseline, timed in turn with it
    speedup: float | None = None
    speedup_interval: Range | None = None
    # of the unchanged model: its fastest and slowest timing, where they lie apart
    drift_ms: Range | None = None
    metric: float | None = None
    relative_error: float | None = None
    size_bytes: int | None = None
    peak_bytes: int | None = None
    quality: Quality | None = None
    refused: str | None = None
    failure: str | None = None
    has_profile: bool = False

    @property
    def verdict(self) -> Verdict:
        """Whether it is faster than the unchanged model, if that can be told."""
        if not self.number:
            known = verdict(None, self.latency_ms, None, None)
            if self.drift_ms is None:
                return known
            low, high = map(readable_ms, self.drift_ms)
            return known._replace(sentence=f"{known.sentence} · drifted from {low} to {high}")
        return verdict(
            self.before_ms, self.latency_ms, self.speedup, self.speedup_interval, self.quality
        )

    @property
    def likely_ms(self) -> Range | None:
        """The latencies that the speed-up's interval allows; between which the original drifted."""
        if self.drift_ms is not None:
            return self.drift_ms
        if self.latency_ms is None or not self.speedup or self.speedup_interval is None:
            return None
        low, high = self.speedup_interval
        scale = self.latency_ms * self.speedup
        return (scale / high, scale / low) if is_usable(self.speedup_interval) else None

    @property
    def is_measured(self) -> bool:
        return self.latency_ms is not None and self.failure is None

    @property
    def is_within_limit(self) -> bool:
        """Whether it was measured, and loses no more than its recipe allows."""
        return self.is_measured and not self.refused

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        """Its steps without their remarks; the order of the patterns in an option counts."""
        return tuple(
            f"{kind}: {json.dumps(sorted(item for item in options.items() if item[0] != 'why'))}"
            for step in self.steps
            for kind, options in step.items()
        )


class ResultPair(NamedTuple):
    """Two rows compared: the second's speed-up over the first, and the steps that differ."""

    first: ResultRow
    second: ResultRow
    speedup: float | None
    speedup_interval: Range | None
    verdict: Verdict
    difference: str


class Results(TableRecord):
    """Everything tried in a session, in its order; row 0 is the unchanged model."""

    text_columns: ClassVar[tuple[str, ...]] = ("recipe", "verdict", "note")

    workload: AboutWorkload
    machine: str
    metric_name: str | None = None
    smaller_is_better: bool = False  # of the metric
    current: int | None = None  # the number of the chosen recipe's row
    rows: tuple[ResultRow, ...] = ()

    def __getitem__(self, number: int) -> ResultRow:
        for row in self.rows:
            if row.number == number:
                return row
        numbers = [row.number for row in self.rows]
        known = ", ".join(map(str, numbers)) or "none yet"
        if len(numbers) > MOST_NUMBERS:
            known = f"{len(numbers)} from {min(numbers)} to {max(numbers)}"
        raise MeasureError(f"There is no result {number}; there are {known}.")

    @property
    def measured(self) -> tuple[ResultRow, ...]:
        """The rows with a latency."""
        return tuple(row for row in self.rows if row.is_measured)

    @property
    def trade_off(self) -> TradeOff:
        """The metric, or the closeness of the output, against the latency of each row."""
        rows = [(row, worth) for row in self.measured if (worth := self.worth(row)) is not None]
        if not rows:
            raise MeasureError(f"Nothing was measured of {self.workload}; measure it first.")
        return TradeOff(
            title=self.title,
            unit=(self.metric_name or "metric") if self.has_metric else "closeness",
            smaller_is_better=self.has_metric and self.smaller_is_better,
            bargains=tuple(
                Bargain(
                    name=str(row.number),
                    latency_ms=row.latency_ms or 0.0,
                    size_bytes=row.size_bytes or 0,
                    worth=worth,
                )
                for row, worth in rows
            ),
        )

    @property
    def frontier(self) -> tuple[int, ...]:
        """The rows that no other one beats in both speed and accuracy, the fastest first."""
        if all(self.worth(row) is None for row in self.measured):
            return ()
        kept = {row.number for row in self.measured if row.is_within_limit}
        trade_off = self.trade_off
        within = tuple(row for row in trade_off.bargains if int(row.name) in kept)
        unbeaten = trade_off.model_copy(update={"bargains": within}).unbeaten("latency_ms")
        return tuple(int(row.name) for row in unbeaten)

    def worth(self, row: ResultRow) -> float | None:
        """A row's metric (None where it was stopped before), else 1 − its output error; None if it
        is not finite.
        """
        worth = row.metric if self.has_metric else 1 - (row.relative_error or 0.0)
        return worth if worth is not None and math.isfinite(worth) else None

    def pair(self, first: int, second: int) -> ResultPair:
        """Compare two rows by the ratio of their speed-ups, with an interval of both doubts."""
        before, after = self[first], self[second]
        ratio, interval = _ratio(before, after)
        quality = worse(before.quality, after.quality)
        return ResultPair(
            before,
            after,
            ratio,
            interval,
            verdict(before.latency_ms, after.latency_ms, ratio, interval, quality),
            _difference(before, after),
        )

    def short_label(self, row: ResultRow) -> str:
        """A row's steps by what they add to an earlier row: '5 + int8 in 14 layers'."""
        parents = [
            other
            for other in self.rows
            if other.number < row.number
            and other.steps
            and len(other.steps) < len(row.steps)
            and not Counter(other._texts) - Counter(row._texts)
        ]
        if not parents:
            return row.label
        parent = max(parents, key=lambda other: (len(other.steps), other.number))
        return " + ".join([str(parent.number), *_only(row, parent)])

    @property
    def frame(self) -> Frame:
        left_out = {"steps", "step_labels", "quality"}
        rows = [
            row.model_dump(exclude=left_out)
            | {"verdict": row.verdict.word, "is_current": row.number == self.current}
            for row in self.rows
        ]
        columns = [*ResultRow.model_fields, "verdict", "is_current"]
        kept = [name for name in columns if name not in left_out]
        return frame_of(rows, "number", kept)

    @property
    def title(self) -> str:
        count = sum(row.number > 0 for row in self.rows)
        return f"{self.workload} on {self.machine} · {count} tried · one baseline"

    def table(self) -> list[dict[str, str]]:
        return [self._readable(row) for row in self.rows]

    def _readable(self, row: ResultRow) -> dict[str, str]:
        return {
            "number": str(row.number),
            "recipe": self.short_label(row),
            "latency ms": readable_ms(row.latency_ms),
            "speed-up": _speedup_text(row),
            "verdict": row.verdict.word,
            self.metric_name or "metric": or_dash(row.metric, "{:.4f}"),
            "weights": readable_bytes(row.size_bytes),
            "note": row.failure or (f"refused: {row.refused}" if row.refused else ""),
        }

    def is_bold(self, row: dict[str, str]) -> bool:
        return row.get("number") == str(self.current)

    @property
    def has_metric(self) -> bool:
        """Whether a row has a finite metric; else the distance of the outputs is compared."""
        return any(math.isfinite(row.metric) for row in self.measured if row.metric is not None)

    @property
    def is_share(self) -> bool:
        """Whether `worth` is a share: closeness, or a metric that grows and is never above 1."""
        is_less_better = self.has_metric and self.smaller_is_better
        return not is_less_better and not any((row.metric or 0) > 1 for row in self.rows)


def _speedup_text(row: ResultRow) -> str:
    if not row.number or row.speedup is None or row.speedup_interval is None:
        return "–" if row.number else "1"
    likely = readable_interval(row.speedup_interval, like=row.speedup)
    return f"{sign(row.verdict.word, row.quality)}{readable_ratio(row.speedup)} × ({likely})"


def _ratio(before: ResultRow, after: ResultRow) -> tuple[float | None, Range | None]:
    """The ratio of two speed-ups; the doubts of both add up as independent ones."""
    known = [_logs(before), _logs(after)]
    if known[0] is None or known[1] is None or before.number == after.number:
        return None, None
    (start, start_low, start_high), (end, end_low, end_high) = known[0], known[1]
    middle = end - start
    low = middle - math.hypot(end - end_low, start_high - start)
    high = middle + math.hypot(end_high - end, start - start_low)
    return math.exp(middle), (math.exp(low), math.exp(high))


def _logs(row: ResultRow) -> tuple[float, float, float] | None:
    """The logarithms of a row's speed-up and its ends; the unchanged model's are 0."""
    if not row.number:
        return (0.0, 0.0, 0.0)
    if not row.is_measured or not row.speedup or row.speedup_interval is None:
        return None
    low, high = row.speedup_interval
    return (math.log(row.speedup), math.log(low), math.log(high)) if low > 0 else None


def _difference(first: ResultRow, second: ResultRow) -> str:
    """The steps that only one of two rows has, as a sentence."""
    only = [_only(first, second), _only(second, first)]
    parts = [
        f"{name} has {', '.join(labels)}"
        for name, labels in zip(("A", "B"), only, strict=True)
        if labels
    ]
    if parts:
        return f"Only {'; only '.join(parts)}."
    order = "" if first._texts == second._texts else ", in another order"
    return f"Both have the same steps{order}."


def _only(row: ResultRow, other: ResultRow) -> list[str]:
    """The labels of the steps that the other row has not, or not as often."""
    labels, shared = list[str](), Counter(other._texts)
    for label, text in zip(row.step_labels, row._texts, strict=True):
        if shared[text]:
            shared[text] -= 1
        else:
            labels.append(label)
    return labels


Value = bool | int | float | str | None


class SweepRun(Record):
    """One run: its parameters, and the figures of its report."""

    name: str
    parameters: dict[str, Value]
    figures: dict[str, float] = {}
    smaller_is_better: bool = False  # of the metric
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
        failed = f", {len(self.failed)} failed" if self.failed else ""
        beside = (
            f" · {self.jobs} at a time, so latencies disturbed each other" if self.jobs > 1 else ""
        )
        stopped = " · stopped early" if self.is_interrupted else ""
        order = f" · by {self.sorted_by}" if self.sorted_by else ""
        return f"{self.notebook}: {counted(len(self.runs), 'run')}{failed}{order}{beside}{stopped}"

    @property
    def frame(self) -> Frame:
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
    if name in ("parameters", "flops"):
        return readable_count(figure)
    return f"{figure:.0f}" if abs(figure) >= 9999.5 else f"{figure:.4g}"
