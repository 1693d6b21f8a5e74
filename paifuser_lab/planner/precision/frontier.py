"""Points on the way from the quickest (or smallest) choice to the one that loses least, none of
them worse in both than another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy

from ...formats import FLOATS
from ...records import AllocationPoint
from .costs import PlanningProblem
from .latency import Stop
from .program import Cost, Solution, solve_in_order

Steps = tuple[dict[str, Any], ...]

BUDGETS = 24


@dataclass(frozen=True)
class Choice:
    """A solution, and what is around its layers."""

    problem: PlanningProblem
    solution: Solution

    @property
    def cost(self) -> Cost:
        """What it costs in all."""
        return self.solution.cost


def best_choice(
    problems: Iterable[PlanningProblem], order: Sequence[str], limits: Mapping[str, float]
) -> Choice | None:
    """The best whatever is around the layers; None where nothing is within the limits."""
    found = [
        Choice(one, solution)
        for one in problems
        if (solution := solve_in_order(one.program, order, limits)) is not None
    ]
    return min(found, key=lambda one: [getattr(one.cost, name) for name in order], default=None)


def uniform_choices(
    problems: Sequence[PlanningProblem], formats: Iterable[str]
) -> dict[str, Choice]:
    """Every layer in one format, where it can have it; a float format is around the layers too."""
    found: dict[str, Choice] = {}
    for name in formats:
        around = name if name in FLOATS else "fp32"
        problem = next((one for one in problems if one.around == around), None)
        if problem is not None and (chosen := _all_in(problem, name)) is not None:
            found[name] = Choice(problem, Solution(chosen, problem.program.total(chosen)))
    return found


def _all_in(problem: PlanningProblem, name: str) -> tuple[str, ...] | None:
    """The format for all, or what is around a layer that cannot have it."""
    chosen = [name if name in options else problem.around for options in problem.program.options]
    is_possible = all(
        one in options for one, options in zip(chosen, problem.program.options, strict=True)
    )
    return tuple(chosen) if is_possible and name in chosen else None


def frontier(
    problems: Sequence[PlanningProblem],
    axis: str,
    limits: Mapping[str, float],
    known: Iterable[Choice],
    seconds: float,
    should_stop: Stop = lambda: False,
) -> tuple[list[Choice], bool]:
    """The best for each of a row of budgets, and what else is known, without what another beats;
    whether there was time for all.
    """
    until = time.perf_counter() + seconds
    ends = [best_choice(problems, order, limits) for order in ((axis, "loss"), ("loss", axis))]
    low, high = (getattr(one.cost, axis) for one in ends if one is not None)
    found, is_whole = [*known, *(one for one in ends if one is not None)], True
    for budget in numpy.linspace(low, high, BUDGETS)[1:-1]:
        if time.perf_counter() > until or should_stop():
            is_whole = False
            break
        within = {**limits, axis: min(float(budget), limits.get(axis, numpy.inf))}
        found += [one for one in [best_choice(problems, ("loss", axis), within)] if one is not None]
    return unbeaten(found, axis), is_whole


def unbeaten(found: Iterable[Choice], axis: str) -> list[Choice]:
    """Those that no other beats in both regards, the least by the axis first."""
    kept: list[Choice] = []
    for one in sorted(found, key=lambda one: (getattr(one.cost, axis), one.cost.loss)):
        if not kept or one.cost.loss < kept[-1].cost.loss:
            kept.append(one)
    return kept


def point_of(choice: Choice, name: str) -> AllocationPoint:
    """A choice as a record keeps it."""
    problem, solution = choice.problem, choice.solution
    formats = dict(zip(problem.layers, solution.formats, strict=True)) | dict.fromkeys(
        problem.fixed, problem.around
    )
    errors = (known[chosen] for known, chosen in zip(problem.errors, solution.formats, strict=True))
    return AllocationPoint(
        name=name,
        formats=formats,
        around=problem.around,
        loss=solution.cost.loss,
        loss_error=sqrt(sum(error**2 for error in errors)),
        latency_ms=solution.cost.latency_ms,
        size_bytes=round(solution.cost.size_bytes),
        recipe_steps=steps_of(formats, problem.around),
    )


def steps_of(formats: Mapping[str, str], around: str) -> Steps:
    """The steps that give each layer its format, everything between them being in `around`; none
    where nothing changes.

    A default of integers leaves what is between the layers alone, which is in fp32 then.
    """
    defaults = (
        [around]
        if around != "fp32"
        else ["fp32", *sorted({name for name in formats.values() if name not in FLOATS})]
    )
    spelled = [_options(formats, default) for default in defaults]
    best = min(spelled, key=lambda options: (len(options.get("layers", {})), len(options)))
    return ({"precision": best},) if best else ()


def _options(formats: Mapping[str, str], default: str) -> dict[str, Any]:
    apart = _patterns(formats, default)
    chosen: dict[str, Any] = {} if default == "fp32" else {"default": default}
    return chosen | ({"layers": apart} if apart else {})


def _patterns(formats: Mapping[str, str], default: str) -> dict[str, str]:
    """Layers that are apart from the default by name, or by their family where it is all alike."""
    found: dict[str, str] = {}
    for layer, name in formats.items():
        if name != default:
            found[_family(layer, formats)] = name
    return found


def _family(layer: str, formats: Mapping[str, str]) -> str:
    """'layer4.*' for a layer whose whole family has its format.

    Only for integers: in a float format a pattern would take along what is between the layers,
    such as a batch-norm.
    """
    name, parts = formats[layer], layer.split(".")
    if name in FLOATS:
        return layer
    for depth in range(1, len(parts)):
        prefix = ".".join(parts[:depth]) + "."
        family = [other for other in formats if other.startswith(prefix)]
        if len(family) > 1 and all(formats[other] == name for other in family):
            return f"{prefix}*"
    return layer
