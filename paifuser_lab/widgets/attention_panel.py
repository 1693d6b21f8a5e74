"""What sparse attention costs, to choose from: a slider over the shares of the keys, and a tick for
each layer that takes part.
"""

from __future__ import annotations

from typing import Any

import traitlets

from ..recipe import Recipe
from ..records import AttentionCost
from .attending import attention_step, checked_keep, checked_layers
from .panel import Panel


class AttentionPanel(Panel):
    """`panel.keep` is the share of the keys that is kept, `panel.layers` those that take part; both
    can be set.

    `panel.step` is that choice as a step, `panel.recipe` as a recipe.
    """

    keep = traitlets.Float(
        help="the share of the keys that is attended to, one of those looked at"
    ).tag(sync=True)
    layers: traitlets.List[str] = traitlets.List(help="the layers that take part").tag(sync=True)

    def __init__(self, found: AttentionCost) -> None:
        self.found = found
        super().__init__(
            "attention",
            found,
            keep=found.keeps[0],
            layers=[row.layer for row in found.sparse_layers],
        )

    @property
    def step(self) -> dict[str, Any]:
        """What was chosen, as a step; {} where no layer takes part."""
        return attention_step(self.found, self.keep, self.layers) if self.layers else {}

    @property
    def recipe(self) -> Recipe:
        """What was chosen, ready for `lab.apply`; empty where no layer takes part."""
        return Recipe([self.step] if self.step else [], workload=self.found.workload)

    @traitlets.validate("keep")
    def _check_keep(self, proposal: Any) -> float:
        return checked_keep(self.found, proposal["value"])

    @traitlets.validate("layers")
    def _check_layers(self, proposal: Any) -> list[str]:
        return checked_layers(self.found, proposal["value"])
