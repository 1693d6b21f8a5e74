"""What a search found: its candidates, with the recipe of the best and what was asked of each."""

from __future__ import annotations

import math

from ..errors import RecipeError
from ..records import Candidate, Candidates, Limit, Record, SearchGoal
from ..variant.recipe import Recipe
from .ranking import is_better, rounding

MOST_LOST = 1e9  # that a limit can allow: a metric may become infinite


class Target(Record):
    """A speed-up that was asked for, and the candidate with the least loss that reached it."""

    asked: float
    label: str | None = None  # None where no candidate within the limits reached it
    speedup: float | None = None
    loss: float | None = None


class SearchResult(Candidates):
    """The candidates of a search, and what follows from them."""

    targets: tuple[Target, ...] = ()
    skipped: int = 0  # combinations whose prediction is sure to lose
    study: str = ""  # where its trials are kept
    importance: dict[str, float] = {}  # of each choice, by Optuna's analysis of the trials
    reason: str = ""  # why nothing is returned
    loaded_as: str = ""  # the name by which `lab.load` finds the workload again
    must_change: bool = False  # the unchanged model is past a limit

    @property
    def best(self) -> Recipe:
        """The recipe of the best candidate; without steps where nothing is better than the model,
        if that is within the limits.
        """
        first = self.first
        if first is None or not (self.must_change or is_better(first, self.goal)):
            return Recipe(workload=self.loaded_as or self.workload)
        return recipe_of(self, first.label, self.loaded_as or None)

    @property
    def parts(self) -> str:
        """What each step of the best candidate contributes; '' where that was not measured."""
        first = self.first
        if first is None or not any(first.contributions):
            return ""
        steps = zip(Recipe(first.steps), first.contributions, strict=True)
        known = [f"{step.label} {_without(factor, self.goal)}" for step, factor in steps if factor]
        return f"Without a step of '{first.label}': {'; '.join(known)}."

    @property
    def frontier(self) -> tuple[Candidate, ...]:
        """The measured candidates that no other beats in the goal and in the loss, best first."""
        known = [(row.value(self.goal), row.loss, row) for row in self.rows]
        measured = [
            (value, loss, row)
            for value, loss, row in known
            if value is not None and loss is not None
        ]
        frontier: list[Candidate] = []
        least = math.inf
        for _, loss, row in sorted(measured, key=lambda one: one[:2]):
            if loss < least:
                frontier.append(row)
                least = loss
        return tuple(frontier)

    @property
    def captions(self) -> list[str]:
        """The title, notes, whether the machine was quiet, what steps contribute or why none is."""
        return [line for line in (*super().captions, self.parts, self.reason) if line]


def recipe_of(search: Candidates | None, label: str, workload: str | None = None) -> Recipe:
    """The recipe of a candidate, with its reasons and the limit of the search."""
    if search is None:
        raise RecipeError("Nothing was searched yet; press Search first.")
    row = next((row for row in search.rows if row.label == label), None)
    if row is None or row.status == "refused":
        known = ", ".join(row.label for row in search.rows if row.status != "refused")
        raise RecipeError(f"There is no candidate '{label}' to apply; there are {known or 'none'}.")
    factors = row.contributions or (None,) * len(row.steps)
    steps = [
        {kind: options if "why" in options else options | {"why": _why(row, factor, search.goal)}}
        for step, factor in zip(row.steps, factors, strict=True)
        for kind, options in step.items()
    ]
    return Recipe(steps, workload=workload or search.workload, limit=_limit(search, row))


def _limit(search: Candidates, row: Candidate) -> Limit:
    """The limit of the search, widened to what this candidate loses: the person has seen it.

    Without labelled data the search's limit is one of the output error.
    """
    allowed = search.metric_drop
    if row.metric_lost is not None:
        allowed = max(allowed, row.metric_lost, rounding(row))
        return Limit(metric_drop=min(MOST_LOST, allowed))
    # a drop in a metric's own units is no error of the output
    error = 0.0 if search.smaller_is_better else allowed
    error = max(Limit().output_error, error, row.relative_error or 0.0)
    return Limit(metric_drop=allowed, output_error=error)


def _why(row: Candidate, factor: float | None, goal: SearchGoal) -> str:
    without = f"without this step {_without(factor, goal)}" if factor else ""
    return "; ".join(part for part in (row.why, row.effect, without) if part)


def _without(factor: float, goal: SearchGoal) -> str:
    what = {"size": "size", "memory": "memory"}.get(goal, "time")
    return f"{factor:.2f} × the {what}"


def targets_of(search: SearchResult, asked: tuple[float, ...]) -> tuple[Target, ...]:
    """For each speed-up the ranked candidate with the least loss that reaches it."""
    targets = []
    for speedup in asked:
        reached = [row for row in search.ranked if (row.speedup or 0.0) >= speedup]
        row = min(reached, key=lambda row: (row.loss or 0.0, -(row.speedup or 0.0)), default=None)
        targets.append(
            Target(asked=speedup, label=row.label, speedup=row.speedup, loss=row.loss)
            if row is not None
            else Target(asked=speedup)
        )
    return tuple(targets)
