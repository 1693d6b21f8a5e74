"""An allocation to choose from: a click on a point of the frontier, or on a uniform choice beside
it, makes it the recipe.
"""

from __future__ import annotations

from typing import Any

import traitlets

from ..errors import RecipeError
from ..planner.precision.planning import recipe_of_point
from ..recipe import Recipe
from ..records import Allocation, AllocationPoint
from .panel import Panel


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
