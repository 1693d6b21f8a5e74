"""Pareto-optimal choices from the fastest (or smallest) to the one that loses least."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy

from ...model.formats import FLOATS
from ...records import AllocationPoint
from .costs import PlanningProblem
from .latency import Stop
from .program import Cost, Solution, solve_in_order

Steps = tuple[dict[str, Any], ...]

BUDGETS = 24  # that the frontier is solved for


@dataclass(frozen=True)
class Choice:
    """A solution, and the problem it solves."""

    problem: PlanningProblem
    solution: Solution

    @property
    def cost(self) -> Cost:
        """The total cost."""
        return self.solution.cost


def best_choice(
    problems: Iterable[PlanningProblem], order: Sequence[str], limits: Mapping[str, float]
) -> Choice | None:
    """The best choice over all formats around the layers; None where none is within the limits."""
    choices = [
        Choice(problem, solution)
        for problem in problems
        if (solution := solve_in_order(problem.program, order, limits)) is not None
    ]
    return min(
        choices, key=lambda choice: [getattr(choice.cost, name) for name in order], default=None
    )


def uniform_choices(
    problems: Sequence[PlanningProblem], formats: Iterable[str]
) -> dict[str, Choice]:
    """Every layer in one format where it can have it; a float format is around the layers too."""
    choices: dict[str, Choice] = {}
    for name in formats:
        around = name if name in FLOATS else "fp32"
        problem = next((candidate for candidate in problems if candidate.around == around), None)
        if problem is not None and (chosen := _all_in(problem, name)) is not None:
            choices[name] = Choice(problem, Solution(chosen, problem.program.total(chosen)))
    return choices


def _all_in(problem: PlanningProblem, name: str) -> tuple[str, ...] | None:
    """The format for all layers, or the format around a layer that cannot have it."""
    chosen = [name if name in options else problem.around for options in problem.program.options]
    is_possible = all(
        format_ in options for format_, options in zip(chosen, problem.program.options, strict=True)
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
    """The choices that no other beats, and whether there was time for all budgets."""
    deadline = time.perf_counter() + seconds
    ends = [best_choice(problems, order, limits) for order in ((axis, "loss"), ("loss", axis))]
    low, high = (getattr(choice.cost, axis) for choice in ends if choice is not None)
    choices, is_complete = [*known, *(choice for choice in ends if choice is not None)], True
    for budget in numpy.linspace(low, high, BUDGETS)[1:-1]:
        if time.perf_counter() > deadline or should_stop():
            is_complete = False
            break
        within = {**limits, axis: min(float(budget), limits.get(axis, numpy.inf))}
        best = best_choice(problems, ("loss", axis), within)
        choices += [best] if best is not None else []
    return non_dominated(choices, axis), is_complete


def non_dominated(choices: Iterable[Choice], axis: str) -> list[Choice]:
    """The choices that no other beats on both axes, in rising order of `axis`."""
    front: list[Choice] = []
    for choice in sorted(
        choices, key=lambda choice: (getattr(choice.cost, axis), choice.cost.loss)
    ):
        if not front or choice.cost.loss < front[-1].cost.loss:
            front.append(choice)
    return front


def point_of(choice: Choice, name: str) -> AllocationPoint:
    """A choice as a record."""
    problem, solution = choice.problem, choice.solution
    formats = dict(zip(problem.layers, solution.formats, strict=True)) | dict.fromkeys(
        problem.fixed, problem.around
    )
    errors = (
        by_format[chosen]
        for by_format, chosen in zip(problem.errors, solution.formats, strict=True)
    )
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
    """The steps that give each layer its format, everything between them being in `around`; empty
    where nothing changes.

    An integer default leaves everything between the layers in fp32.
    """
    defaults = (
        [around]
        if around != "fp32"
        else ["fp32", *sorted({name for name in formats.values() if name not in FLOATS})]
    )
    candidates = [_options(formats, default) for default in defaults]
    best = min(candidates, key=lambda options: (len(options.get("layers", {})), len(options)))
    return ({"precision": best},) if best else ()


def _options(formats: Mapping[str, str], default: str) -> dict[str, Any]:
    """The default, and the layers that differ from it, by name or by the pattern of a family."""
    layers = {_family(layer, formats): name for layer, name in formats.items() if name != default}
    chosen: dict[str, Any] = {} if default == "fp32" else {"default": default}
    return chosen | ({"layers": layers} if layers else {})


def _family(layer: str, formats: Mapping[str, str]) -> str:
    """'layer4.*' for a layer whose whole family has its format, else its own name.

    Only for integer formats: in a float format a pattern would also match what is between the
    layers, such as a batch-norm.
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
