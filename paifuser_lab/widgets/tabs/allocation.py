"""An allocation of formats to choose from: a click on a point of the frontier, or on a
uniform choice beside it, makes it the recipe.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import traitlets

from ...errors import RecipeError
from ...figures.allocation import achieved_place, place_of
from ...planner.precision.planning import recipe_of_point
from ...recipe import Recipe
from ...records import Achieved, Allocation, AllocationPoint
from ...session.queries import ACHIEVED, ALLOCATION
from ...session.state import State
from ..panel import Panel
from ..section import Bench, Context, Request, Section
from ..wire import floats

SHARES = (
    "latency_ms",
    "size_bytes",
)  # which the page gives as shares of what the model has as it is


class AllocationPanel(Panel):
    """`panel.chosen` is the place of the chosen point in `panel.found.everything`, and can be set;
    `panel.recipe` is what to apply.
    """

    chosen = traitlets.Int(
        help="the chosen point: those of the frontier first, the uniform ones after them"
    ).tag(sync=True)

    def __init__(self, found: Allocation) -> None:
        self.found = found
        super().__init__("allocation", found, chosen=found.chosen)

    @property
    def point(self) -> AllocationPoint:
        """The chosen point."""
        return self.found.everything[self.chosen]

    @property
    def recipe(self) -> Recipe:
        """The chosen point as a recipe, ready for `lab.apply`."""
        return Recipe(recipe_of_point(self.point), workload=self.found.workload)

    @traitlets.validate("chosen")
    def _check(self, proposal: Any) -> int:
        place, last = int(proposal["value"]), len(self.found.everything) - 1
        if not 0 <= place <= last:
            raise RecipeError(f"this allocation has no point {place}; choose one of 0 to {last}.")
        return place


def packed_allocation(found: Allocation) -> dict[str, Any]:
    """The points in their order, the frontier before the uniform ones; their numbers as float32,
    where NaN is what is not known.
    """
    points = found.everything
    columns = {
        f"achieved_{name}": [getattr(point.achieved, name, None) for point in points]
        for name in Achieved.model_fields
    }
    columns |= {
        name: [getattr(point, name) for point in points]
        for name in ("loss", "loss_error", "latency_ms", "size_bytes")
    }
    columns["x"] = [place_of(found, point)[0] for point in points]
    columns["achieved_x"] = [(achieved_place(found, point) or (None,))[0] for point in points]
    return {
        **found.model_dump(
            include={"unit", "axis", "limits", "baseline_ms", "baseline_bytes"}, mode="json"
        ),
        "title": found.title,
        "remarks": list(found.remarks),
        "frontier": len(found.points),
        "planned": found.chosen,
        "name": [point.name for point in points],
        "around": [point.around for point in points],
        "counts": [dict(Counter(point.formats.values()).most_common()) for point in points],
        "numbers": {name: floats(values) for name, values in columns.items()},
    }


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
        raise RecipeError("No formats have been planned yet; find the frontier first.")
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


def _find(bench: Bench, request: Request) -> None:
    bench.session.query("allocation", **limits_of(request, bench.session.state))


def _choose(bench: Bench, request: Request) -> None:
    """Choose a point of the plan, and have it compared with what was predicted."""
    point = point_at(bench.session.state.allocation, request["point"])
    bench.recipe = with_point(bench.recipe, point)
    bench.session.query("achieved", place=request["point"])


def _state(state: State, context: Context) -> dict[str, Any]:
    sources = (state.allocation, state.recipe)
    return {"allocated": context.once("allocated", lambda: allocated(state), *sources)}


SECTION = Section(
    "allocation",
    record=Allocation,
    pack=packed_allocation,
    panel=AllocationPanel,
    title="Frontier",
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={"allocation": _find, "allocate": _choose},
    queries=(ALLOCATION, ACHIEVED),
    layers=lambda record: record.formats,
)
