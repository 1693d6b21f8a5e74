"""The options of a search, and the rank of its candidates: what the limits let in, the clearly
better first; of equals the simplest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from numbers import Real
from typing import Any, get_args

from ..arguments import check_seconds
from ..errors import MeasureError, WorkloadError
from ..records import Candidate, Limit, Measurement, SearchGoal
from ..records.text import in_figures
from ..workload import Workload

EXACT = 1e-3  # a relative output error below this is rounding, and always allowed
WIDE_OPEN = Limit(metric_drop=1.0, output_error=1e9)  # a search and `plan` have limits of their own
UNJUDGED = "not judged on unseen test data, as the leaders are while the seconds last"
UNREPORTED = "this engine does not report its memory"
TIE_RATIO = 0.97  # candidates within this ratio of the best are equal; the simplest is taken
MOST = sys.float_info.max  # that a metric which is no share may lose
GOALS: tuple[str, ...] = get_args(SearchGoal)
# a limit's name, and the field of a candidate that it bounds
BOUNDED = {
    "latency_ms": "latency_ms",
    "size_bytes": "size_bytes",
    "peak_bytes": "peak_bytes",
    "output_error": "relative_error",
}


@dataclass(frozen=True)
class Options:
    """What a search is for, what it may cost, and how long it may take."""

    goal: Any = "latency"
    metric_drop: Any = 0.01
    may_train: Any = False
    seconds: Any = 60.0
    can_train: bool = False  # the workload has data to train with
    limits: Mapping[str, Any] = field(default_factory=dict)  # by the name of what they bound
    smaller_is_better: bool = False  # of the metric

    def check(self, work: Workload) -> None:
        """Raise unless a search of this workload can use them."""
        if self.goal not in GOALS:
            raise MeasureError(f"goal={self.goal!r} is no goal; choose one of {', '.join(GOALS)}.")
        drop, has_units = self.metric_drop, work.smaller_is_better and work.test is not None
        is_number = isinstance(drop, Real) and not isinstance(drop, bool)
        if not is_number or not 0 <= float(drop) <= (MOST if has_units else 1):
            end = "on" if has_units else "to 1, where 0.01 is one point of accuracy"
            raise MeasureError(
                f"metric_drop={drop!r} is not a loss; give a number from 0 (none) {end}."
            )
        if not isinstance(self.may_train, bool):
            raise MeasureError(f"may_train={self.may_train!r} is neither True nor False.")
        check_seconds(self.seconds, may_be_zero=False)
        for name, limit in self.limits.items():
            if name not in BOUNDED:
                raise MeasureError(
                    f"limits has no '{name}'; what can be bounded is {', '.join(BOUNDED)}."
                )
            if not isinstance(limit, Real) or isinstance(limit, bool) or not float(limit) > 0:
                raise MeasureError(
                    f"limits['{name}']={limit!r} is no limit; give a number above 0."
                )
        if self.may_train and work.train is None:
            raise WorkloadError(
                f"{work.name} has no train data, so nothing can be trained; make the workload with "
                "train=[(inputs, targets), …], or leave may_train=False."
            )


def with_status(
    row: Candidate, limits: Options, baseline: Measurement | None, *, is_judged: bool = True
) -> Candidate:
    """The candidate as measured, outside the limits or lost, with the reason."""
    if row.status == "refused":
        return row
    loss = _loss(row)
    update: dict[str, Any] = {"status": "measured", "reason": "", "allow": None}
    if (lost := _why_lost(row, limits.goal, baseline)) is not None:
        update |= {"status": "lost", "reason": lost}
    elif not (loss <= limits.metric_drop or loss < rounding(row)):  # NaN and ∞ are never allowed
        update = _shut_out(row, loss, limits)
    elif _is_unreported(row, limits):
        update |= {"status": "lost", "reason": UNREPORTED}
    elif exceeded := past(row, limits):
        update |= {"status": "outside the limits", "reason": exceeded}
    elif not is_judged:
        update |= {"status": "lost", "reason": UNJUDGED}
    return row.model_copy(update=update)


def rounding(row: Candidate) -> float:
    """The loss below which a candidate only rounds: of the output, or of the metric where the
    output is kept.
    """
    if row.metric_lost is None:
        return EXACT
    return EXACT * abs(row.metric or 1.0) if (row.relative_error or 0.0) <= EXACT else 0.0


def ranked(
    rows: Iterable[Candidate],
    goal: SearchGoal,
    *,
    is_guarded: bool = True,
    leaders: Collection[str] = (),
) -> tuple[Candidate, ...]:
    """The candidates within the limits, best first and numbered, then the others by status. The
    guard is for what was timed long enough to be clearly better, which then comes first.
    `leaders` were timed together: what few rounds made faster is no better than they are.
    """
    order = ("outside the limits", "lost", "refused")
    leaders = leaders if goal in ("latency", "throughput") else ()
    rows = _guarded(list(rows), goal, leaders) if is_guarded else list(rows)

    def place(row: Candidate) -> tuple[bool, bool]:
        return is_guarded and not is_better(row, goal), row.label not in leaders

    measured = sorted((row for row in rows if row.status == "measured"), key=place)
    inside = [
        row for _, group in groupby(measured, place) for row in _best_first(list(group), goal)
    ]
    others = sorted(
        (row for row in rows if row.status != "measured"),
        key=lambda row: (order.index(row.status), _value(row, goal)),
    )
    return (
        *(row.model_copy(update={"rank": rank}) for rank, row in enumerate(inside, 1)),
        *(row.model_copy(update={"rank": None}) for row in others),
    )


def _guarded(rows: list[Candidate], goal: SearchGoal, leaders: Collection[str]) -> list[Candidate]:
    """The rows with those lost that change the output and are not clearly better than the best one
    that keeps it, if possible a leader.
    """
    exact = [row for row in rows if row.status == "measured" and _loss(row) <= EXACT]
    exact = [row for row in exact if row.label in leaders] or exact
    best = min(exact, key=lambda row: _value(row, goal), default=None)
    if best is None:
        return rows
    reason = f"not clearly better than '{best.label}', which keeps the output"
    return [
        row.model_copy(update={"status": "lost", "reason": reason})
        if row.status == "measured" and _loss(row) > EXACT and not _beats(row, best, goal)
        else row
        for row in rows
    ]


def _beats(row: Candidate, other: Candidate, goal: SearchGoal) -> bool:
    """Whether it is better by more than its interval."""
    if goal in ("latency", "throughput") and row.interval is not None:
        return row.interval[0] > (other.speedup or 1.0)
    return _value(row, goal) < _value(other, goal)


def nearest(rows: Iterable[Candidate], options: Options, *, must_change: bool = False) -> str:
    """Why a search returns nothing: the candidate nearest to the limits, with its figures. A model
    that is past a limit itself must change.
    """
    rows = list(rows)
    if not any(row.latency_ms for row in rows):
        return "No candidate was measured; a search of this model needs more seconds."
    is_found = any(row.rank and (must_change or is_better(row, options.goal)) for row in rows)
    if is_found:
        return ""
    bounded = [row for row in rows if row.status == "outside the limits" and past(row, options)]
    fits = any(
        row.status in ("measured", "lost")
        and not past(row, options)
        and not _is_unreported(row, options)
        for row in rows
    )
    if must_change and (fits or not bounded):
        return (
            "The model does not fit, and what would is not better for this goal or loses too much; "
            "for what is slower, goal='size' finds it."
        )
    if fits or not bounded:
        return "Keep the model as it is: no candidate within the limits is clearly better."
    closest = min(bounded, key=lambda row: _excess(row, options))
    figures = past(closest, options)
    return f"No candidate meets the limits; the nearest is '{closest.label}': {figures}."


def is_better(row: Candidate, goal: SearchGoal) -> bool:
    """Whether a ranked candidate is clearly better than the unchanged model."""
    return goal in ("size", "memory") or row.word == "faster"


def past(row: Candidate | Measurement, options: Options) -> str:
    """The limits that a candidate or the model exceeds, with its figures; '' if it keeps all."""
    return ", ".join(
        f"{name} {value:,.6g} where {limit:,.6g} are allowed"
        for name, limit in options.limits.items()
        if (value := getattr(row, BOUNDED[name])) is not None and not value <= limit
    )


def _is_unreported(row: Candidate, options: Options) -> bool:
    """Whether nobody knows if it keeps the limit of the memory."""
    return "peak_bytes" in options.limits and row.peak_bytes is None


def _excess(row: Candidate, options: Options) -> float:
    """The largest factor by which a limit is exceeded."""
    known = [(getattr(row, BOUNDED[name]), limit) for name, limit in options.limits.items()]
    return max((value / limit for value, limit in known if value is not None), default=0.0)


def _best_first(rows: list[Candidate], goal: SearchGoal) -> list[Candidate]:
    """The rows by value; repeatedly, the simplest of those that equal the best is next."""
    waiting, placed = sorted(rows, key=lambda row: _value(row, goal)), []
    while waiting:
        best = _value(waiting[0], goal)
        equal = [row for row in waiting if best >= TIE_RATIO * _value(row, goal)] or waiting[:1]
        placed.append(min(equal, key=lambda row: (_complexity(row), _value(row, goal))))
        waiting.remove(placed[-1])
    return placed


def _value(row: Candidate, goal: SearchGoal) -> float:
    value = row.value(goal)
    return math.inf if value is None else value


def _complexity(row: Candidate) -> tuple[bool, bool, int]:
    """Engines, then losses, then the number of steps make a candidate less simple."""
    has_engine = any(step.get("backend", {}).get("name", "eager") != "eager" for step in row.steps)
    return (_loss(row) > EXACT, has_engine, len(row.steps))


def _loss(row: Candidate) -> float:
    return row.loss or 0.0


def _why_lost(row: Candidate, goal: SearchGoal, baseline: Measurement | None) -> str | None:
    if goal in ("latency", "throughput"):
        return f"slower: {row.effect}" if row.word == "slower" else None
    field = "size_bytes" if goal == "size" else "peak_bytes"
    before, now = getattr(baseline, field, None), getattr(row, field)
    if now is None:
        return UNREPORTED
    is_smaller = before is None or now < before
    return None if is_smaller else "no smaller" if goal == "size" else "needs as much memory"


def _shut_out(row: Candidate, loss: float, limits: Options) -> dict[str, Any]:
    """The limit that shuts a candidate out, and the options that would let it in."""
    drop = limits.metric_drop
    is_metric = row.metric_lost is not None
    is_share = is_metric and not limits.smaller_is_better and (row.metric or 0) <= 1
    if is_share:
        lost, allowed = f"loses {100 * loss:.3g} points", f"{100 * drop:.3g}"
    else:
        what = "the metric is worse" if is_metric else "the output differs"
        lost, allowed = f"{what} by {in_figures(loss, 2)}", in_figures(drop, 2)
    allowed = "none" if drop == 0 else allowed
    is_cut = any("prune" in step for step in row.steps)
    is_trained = any("distill" in step for step in row.steps)
    needs_training = is_cut and not is_trained and limits.can_train and not limits.may_train
    until = " until trained, and training is off" if needs_training else f": you allow {allowed}"
    most = MOST if is_metric and limits.smaller_is_better else 1  # that a search can allow
    wider = {"metric_drop": _rounded_up(loss)} if loss <= most else None
    return {
        "status": "outside the limits",
        "reason": f"{lost}{until}",
        "allow": {"may_train": True} if needs_training else wider,
    }


def _rounded_up(loss: float) -> float:
    """The least number of two digits that is no smaller, but for its rounding."""
    scale = 10.0 ** (1 - math.floor(math.log10(loss)))
    return max(loss, math.ceil(loss * scale - 1e-9) / scale)
