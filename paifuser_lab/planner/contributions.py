"""What each step of a recipe contributes: it is timed in turn with the recipe without that step."""

from __future__ import annotations

import time
from typing import Any

from ..errors import PaifuserError, ShouldStop, StoppedError
from ..records import Measurement, SearchGoal
from ..variant import Variant, apply_as_timed
from ..variant.comparison import compare
from ..variant.recipe import Recipe
from ..workload import Workload
from .ranking import WIDE_OPEN

BUILDING_SHARE = 0.5  # of the seconds; nothing is measured where building would take more


def contributions_of(
    work: Workload,
    best: Variant,
    goal: SearchGoal,
    *,
    rounds: int,
    seconds: float,
    should_stop: ShouldStop,
) -> tuple[float | None, ...]:
    """By what factor the goal is worse without each step; None where the rest is no recipe, and
    nothing where there is one step alone or the seconds do not suffice.
    """
    steps, began = best.recipe.steps, time.perf_counter()
    building_s = len(steps) * sum(report.seconds for report in best.reports)
    if len(steps) < 2 or building_s > BUILDING_SHARE * seconds:
        return ()
    without: dict[str, Any] = {}
    try:
        for index in range(len(steps)):
            rest = Recipe([*steps[:index], *steps[index + 1 :]], limit=WIDE_OPEN)
            try:
                without[f"without step {index}"] = apply_as_timed(
                    work, rest, should_stop=should_stop
                )
            except StoppedError:
                raise
            except PaifuserError:  # a step that needs the one that is left out
                continue
        compared = compare(
            work,
            rounds=rounds,
            seconds=max(0.0, seconds - (time.perf_counter() - began)),
            metric=False,
            should_stop=should_stop,
            whole=best,
            **without,
        )
    except StoppedError:
        return ()
    rows = {row.name: row for row in compared.rows}
    missing = Measurement(name="", threads=1)
    return tuple(
        _factor(rows["whole"], rows.get(f"without step {index}", missing), goal)
        for index in range(len(steps))
    )


def _factor(whole: Measurement, rest: Measurement, goal: SearchGoal) -> float | None:
    name = {"size": "size_bytes", "memory": "peak_bytes"}.get(goal, "latency_ms")
    now, before = getattr(whole, name), getattr(rest, name)
    if name == "latency_ms" and whole.speedup and rest.speedup:  # ratios of the same rounds
        return whole.speedup / rest.speedup
    return before / now if now and before else None
