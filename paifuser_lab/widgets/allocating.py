"""A plan of number formats in the workbench: what it may cost, which of its points the recipe is,
and the recipe of another.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import RecipeError
from ..recipe import Recipe
from ..records import Allocation, AllocationPoint
from ..session.state import State

SHARES = (
    "latency_ms",
    "size_bytes",
)  # which the page gives as shares of what the model has as it is


def limits_of(request: dict[str, Any], state: State) -> dict[str, float]:
    """The budget that the page asked for, as the planner wants it."""
    name, value = request["limit"], request["value"]
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < 0
    ):
        raise RecipeError(f"{value!r} is no budget; give a number, 0 or more.")
    if name == "loss":
        return {"loss": float(value)}
    if name not in SHARES:
        raise RecipeError(
            f"there is no budget of {name!r}; there are loss, {' and '.join(SHARES)}."
        )
    whole = getattr(state.comparison[state.comparison.baseline], name) if state.comparison else None
    if whole is None:
        raise RecipeError(
            "the model as it is has not been measured yet, of which the budget is a share; wait "
            "until it is."
        )
    return {name: value * whole}


def with_point(recipe: Recipe, point: AllocationPoint) -> Recipe:
    """The recipe with a point's formats in the place of those that it had."""
    chosen = recipe.of([step for step in recipe if step.kind != "precision"])
    for step in point.recipe_steps:
        chosen = chosen.with_step(dict(step))
    return chosen


def point_at(found: Allocation | None, place: Any) -> AllocationPoint:
    """A point by its place: those of the frontier first, the uniform ones after them."""
    if found is None:
        raise RecipeError("Nobody has planned formats yet; find the frontier first.")
    if (
        isinstance(place, bool)
        or not isinstance(place, int)
        or not 0 <= place < len(found.everything)
    ):
        raise RecipeError(
            f"this allocation has no point {place}; choose one of 0 to {len(found.everything) - 1}."
        )
    return found.everything[place]


def allocated(state: State) -> int | None:
    """The place of the point whose formats the recipe has; None where it has others, is empty, or
    nobody has planned.

    All layers are in fp32 in an empty recipe, too, but nobody has chosen that.
    """
    if state.allocation is None or not len(state.recipe):
        return None
    chosen = [step for step in state.recipe if step.kind == "precision"]
    points = enumerate(state.allocation.everything)
    return next(
        (place for place, point in points if list(with_point(Recipe([]), point)) == chosen), None
    )
