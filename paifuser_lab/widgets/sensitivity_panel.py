"""A sensitivity to choose from: a click on a cell is a number format for a layer."""

from __future__ import annotations

from typing import Any

import traitlets

from ..errors import PaifuserError, RecipeError
from ..formats import NAMES
from ..recipe import Recipe
from ..records import Sensitivity
from .panel import Panel


class SensitivityPanel(Panel):
    """`panel.chosen` is the number format that was chosen for each layer, and can be set;
    `panel.recipe` is that choice as a recipe.
    """

    chosen: traitlets.Dict[str, str] = traitlets.Dict(
        help="layer → the number format that was chosen for it"
    ).tag(sync=True)

    def __init__(self, found: Sensitivity) -> None:
        self.found = found
        super().__init__("sensitivity", found)
        self.observe(self._on_requests, "requests")

    @property
    def recipe(self) -> Recipe:
        """What was chosen, ready for `lab.apply`; empty where nothing was."""
        steps = [{"precision": {"layers": dict(self.chosen)}}] if self.chosen else []
        return Recipe(steps, workload=self.found.workload)

    @traitlets.validate("chosen")
    def _check(self, proposal: Any) -> dict[str, str]:
        known = {row.layer for row in self.found.rows}
        for layer, name in proposal["value"].items():
            if layer not in known:
                raise RecipeError(
                    f"'{layer}' is no layer of this sensitivity; choose one of "
                    f"{', '.join(sorted(known)[:8])} …"
                )
            if name not in NAMES:
                raise RecipeError(
                    f"'{layer}' cannot run in {name!r}; choose one of {', '.join(NAMES)}."
                )
        return dict(proposal["value"])

    def _on_requests(self, change: Any) -> None:
        """Serve what the page asked for, in order, each once."""
        for request in sorted(change["new"], key=lambda one: one["id"]):
            if request["id"] <= self.served:
                continue
            with self.hold_sync():  # one message: "served" alone would show the page the old choice
                self.served = request["id"]
                if request["do"] != "precision":
                    raise PaifuserError(
                        f"A sensitivity alone does not know '{request['do']}'; it knows precision."
                    )
                kept = {
                    layer: name for layer, name in self.chosen.items() if layer != request["layer"]
                }
                self.chosen = kept | (
                    {request["layer"]: request["name"]} if request["name"] else {}
                )
