"""Rank the candidates of a search: what the limits let in, best first; of equals the simplest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

from ..records import Candidate, Measurement, SearchGoal

EXACT = 1e-3  # a relative output error below this is rounding, and always allowed
TIE_RATIO = 0.97  # candidates within this ratio of the best are equal; the simplest is taken


class Limits(Protocol):
    """The part of a search's options that a candidate is judged by."""

    @property
    def goal(self) -> Any: ...
    @property
    def metric_drop(self) -> Any: ...
    @property
    def may_train(self) -> Any: ...
    @property
    def can_train(self) -> bool: ...


def with_status(row: Candidate, limits: Limits, baseline: Measurement | None) -> Candidate:
    """The candidate as measured, outside the limits or lost, with the reason."""
    if row.status == "refused":
        return row
    if (lost := _why_lost(row, limits.goal, baseline)) is not None:
        return row.model_copy(update={"status": "lost", "reason": lost, "allow": None})
    allowed = max(limits.metric_drop, 0 if row.metric_lost is not None else EXACT)
    if not (loss := _loss(row)) <= allowed:  # NaN is no loss that could be allowed
        return row.model_copy(update=_shut_out(row, loss, limits))
    return row.model_copy(update={"status": "measured", "reason": "", "allow": None})


def ranked(rows: Iterable[Candidate], goal: SearchGoal) -> tuple[Candidate, ...]:
    """The candidates within the limits best first and numbered, then those outside the limits,
    lost and refused.
    """
    order = ("outside the limits", "lost", "refused")
    rows = list(rows)
    inside = _best_first([row for row in rows if row.status == "measured"], goal)
    others = sorted(
        (row for row in rows if row.status != "measured"),
        key=lambda row: (order.index(row.status), _value(row, goal)),
    )
    return (
        *(row.model_copy(update={"rank": rank}) for rank, row in enumerate(inside, 1)),
        *(row.model_copy(update={"rank": None}) for row in others),
    )


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
    """The loss of the metric; without labelled data, the relative error of the output."""
    return row.metric_lost if row.metric_lost is not None else row.relative_error or 0.0


def _why_lost(row: Candidate, goal: SearchGoal, baseline: Measurement | None) -> str | None:
    if goal in ("latency", "throughput"):
        return f"slower: {row.effect}" if row.word == "slower" else None
    field = "size_bytes" if goal == "size" else "peak_bytes"
    before, now = getattr(baseline, field, None), getattr(row, field)
    if now is None:
        return "this engine does not report its memory"
    is_smaller = before is None or now < before
    return None if is_smaller else "no smaller" if goal == "size" else "needs as much memory"


def _shut_out(row: Candidate, loss: float, limits: Limits) -> dict[str, Any]:
    """The limit that shuts a candidate out, and the options that would let it in."""
    drop = limits.metric_drop
    is_metric = row.metric_lost is not None
    lost = f"loses {100 * loss:.3g} points" if is_metric else f"the output differs by {loss:.2g}"
    allowed = "none" if drop == 0 else f"{100 * drop:.3g}" if is_metric else f"{drop:.2g}"
    is_cut = any("prune" in step for step in row.steps)
    is_trained = any("distill" in step for step in row.steps)
    needs_training = is_cut and not is_trained and limits.can_train and not limits.may_train
    until = " until trained, and training is off" if needs_training else f": you allow {allowed}"
    return {
        "status": "outside the limits",
        "reason": f"{lost}{until}",
        "allow": {"may_train": True} if needs_training else _allowing(loss),
    }


def _allowing(loss: float) -> dict[str, Any] | None:
    """The limit that lets this loss in; None for one that no limit allows."""
    return {"metric_drop": _rounded_up(loss)} if loss <= 1 else None


def _rounded_up(loss: float) -> float:
    """The least number of two digits that is no smaller."""
    scale = 10.0 ** (1 - math.floor(math.log10(loss)))
    return min(1.0, math.ceil(loss * scale - 1e-9) / scale)
