"""An importance to choose from: a threshold over all layers, or over one, says how many channels of
each are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from ..errors import PaifuserError, RecipeError
from ..recipe import Recipe
from ..records import Importance
from ..saliency.channels import CHANNEL_ESTIMATORS
from .panel import Panel


def pruning(ratios: Mapping[str, float], method: str) -> dict[str, Any]:
    """The step that removes these shares by the importance that is shown."""
    known = {"importance": method} if method in CHANNEL_ESTIMATORS else {}
    return {"prune": {"layers": dict(ratios), **known}}


class ImportancePanel(Panel):
    """`panel.kept` is how many channels of each layer are kept, `panel.threshold` the one threshold
    over all layers; both can be set.

    `panel.recipe` removes the others. `panel.live` tells where a threshold is while it is dragged,
    ten times a second at most.
    """

    threshold = traitlets.Float(
        0.0, help="over all layers, in each layer's mean; what is below is removed"
    ).tag(sync=True)
    kept: traitlets.Dict[str, int] = traitlets.Dict(
        help="layer → how many of its channels are kept"
    ).tag(sync=True)
    live: traitlets.Dict[str, Any] = traitlets.Dict(
        help="while a threshold is dragged: its layer ('' for all), threshold, kept; else {}"
    ).tag(sync=True)

    def __init__(self, found: Importance) -> None:
        self.found = found
        super().__init__("importance", found, kept={row.layer: row.channels for row in found.rows})
        self.observe(self._on_requests, "requests")
        self.observe(self._on_threshold, "threshold")

    @property
    def recipe(self) -> Recipe:
        """What was chosen, as a recipe; empty where every channel is kept."""
        ratios = self.found.ratios(self.kept)
        return Recipe(
            [pruning(ratios, self.found.method)] if ratios else [], workload=self.found.workload
        )

    @traitlets.validate("kept")
    def _check_kept(self, proposal: Any) -> dict[str, int]:
        rows = {row.layer: row for row in self.found.rows}
        for layer, count in proposal["value"].items():
            if layer not in rows:
                raise RecipeError(
                    f"'{layer}' is no layer of this importance; choose one of "
                    f"{', '.join(list(rows)[:8])} …"
                )
            row = rows[layer]
            if (
                isinstance(count, bool)
                or not isinstance(count, int)
                or not 1 <= count <= row.channels
            ):
                raise RecipeError(
                    f"'{layer}' cannot keep {count!r} channels; it has {row.channels}, and keeps 1 "
                    "or more."
                )
            if row.is_answer and count < row.channels:
                raise RecipeError(
                    f"'{layer}' cannot keep {count} channels; {row.note or 'all are the answer'}."
                )
        return {layer: proposal["value"].get(layer, row.channels) for layer, row in rows.items()}

    @traitlets.validate("threshold")
    def _check_threshold(self, proposal: Any) -> float:
        if not 0 <= proposal["value"] < float("inf"):
            raise RecipeError(
                f"{proposal['value']} is no threshold; it is 0 or more, in the mean of each layer."
            )
        return float(proposal["value"])

    def _on_threshold(self, change: Any) -> None:
        self.kept = self.found.kept(threshold=change["new"])

    def _on_requests(self, change: Any) -> None:
        """Serve what the page asked for, in order, each once."""
        for request in sorted(change["new"], key=lambda one: one["id"]):
            if request["id"] <= self.served:
                continue
            with self.hold_sync():  # one message: "served" alone would show the page the old choice
                self.served = request["id"]
                if request["do"] != "keep":
                    raise PaifuserError(
                        f"An importance alone does not know '{request['do']}'; it knows keep."
                    )
                self._keep(request["layer"], request["threshold"], request["kept"])

    def _keep(self, layer: str, threshold: float, kept: int) -> None:
        """So many channels of a layer; or, with '' for the layer, one threshold over all."""
        if layer:
            self.kept = dict(self.kept) | {layer: kept}
            return
        self.threshold = threshold
        self.kept = self.found.kept(
            threshold=threshold
        )  # also where the threshold is what it was, and a layer went its own way since
