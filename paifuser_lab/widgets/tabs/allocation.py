"""The section of a format allocation: a click on a point makes it the recipe."""

from __future__ import annotations

from collections import Counter
from typing import Any

import traitlets

from ...errors import RecipeError
from ...planner.precision.planning import recipe_of_point
from ...records import Allocation, AllocationPoint, counted
from ...session.state import State
from ...variant.recipe import Recipe
from ...views.allocation import compared_rows, picture
from ..panel import Panel
from ..section import Bench, Context, Request, Section, no_weights
from ..wire import pictured

ASKED = "asked_point"  # the index of the point that was clicked last


class AllocationPanel(Panel):
    """`panel.chosen` is the index in `panel.found.everything`; `panel.recipe` its recipe."""

    chosen = traitlets.Int(
        help="the index of the chosen point: the frontier first, then the uniform ones"
    ).tag(sync=True)

    def __init__(self, allocation: Allocation) -> None:
        self.found = allocation
        super().__init__("allocation", allocation, chosen=allocation.chosen)

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
        point_at(self.found, proposal["value"])
        return int(proposal["value"])


def packed_allocation(allocation: Allocation) -> dict[str, Any]:
    """The picture, and what stands beside it of each point, the frontier first."""
    points = [
        {
            "name": point.name,
            "formats": [
                (name, counted(count, "layer"))
                for name, count in Counter(point.formats.values()).most_common()
            ],
            "around": "" if point.around == "fp32" else f"{point.around} between them",
            "rows": compared_rows(allocation, point),
        }
        for point in allocation.everything
    ]
    return {"picture": pictured(picture(allocation)), "points": points, "best": allocation.chosen}


def budget_of(request: dict[str, Any]) -> dict[str, Any]:
    """The budget of a request: a loss, or a share `of` what the model takes as it came."""
    name, value = request["limit"], float(request["value"])
    return {"loss": value} if name == "loss" else {"shares": (value,), "of": name}


def with_point(recipe: Recipe, point: AllocationPoint) -> Recipe:
    """The recipe with its formats replaced by those of a point."""
    chosen = recipe.of([step for step in recipe if step.kind != "precision"])
    for step in point.recipe_steps:
        chosen = chosen.with_step(dict(step))
    return chosen


def point_at(allocation: Allocation | None, index: int) -> AllocationPoint:
    """A point by its index: those of the frontier first, then the uniform ones."""
    if allocation is None:
        raise RecipeError("No formats have been planned yet; find the frontier first.")
    if not 0 <= index < len(allocation.everything):
        raise RecipeError(
            f"this allocation has no point {index}; choose one of 0 to "
            f"{len(allocation.everything) - 1}."
        )
    return allocation.everything[index]


def allocated(state: State) -> int | None:
    """The index of the point whose formats the recipe has; None if there is none or no plan.

    Several points can have the same formats, such as a uniform one that is also on the frontier:
    it is the one that was asked for. Unless asked for, an empty recipe matches no point: all its
    layers are in fp32, but that was not chosen.
    """
    if state.allocation is None:
        return None
    chosen = [step for step in state.recipe if step.kind == "precision"]
    matching = [
        index
        for index, point in enumerate(state.allocation.everything)
        if list(with_point(Recipe([]), point)) == chosen
    ]
    asked = state.record(ASKED)
    if asked in matching:
        return int(asked)
    return matching[0] if matching and len(state.recipe) else None


def _find(bench: Bench, request: Request) -> None:
    budget = budget_of(request)
    bench.session.show(ASKED, None)  # the numbers of a new plan's points are others
    bench.session.query("allocation", **budget)


def _choose(bench: Bench, request: Request) -> None:
    """Choose a point of the plan, and measure it to compare with the prediction."""
    point = point_at(bench.session.state.allocation, request["point"])
    bench.session.show(ASKED, request["point"])
    bench.recipe = with_point(bench.recipe, point)
    bench.session.query("achieved", place=request["point"])


def _state(state: State, context: Context) -> dict[str, Any]:
    sources = (state.allocation, state.recipe, state.record(ASKED))
    return {"allocated": context.once("allocated", lambda: allocated(state), *sources)}


SECTION = Section(
    "allocation",
    record=Allocation,
    pack=packed_allocation,
    panel=AllocationPanel,
    title="Best mixtures",
    hint="mixed-precision allocation, Pareto frontier",
    tab="options",
    place="segment",
    absent=no_weights,
    is_always_shown=True,
    state=_state,
    requests={"allocation": _find, "allocate": _choose},
    layers=lambda record: record.formats,
)
