"""A sensitivity to choose from: a click on a cell is a format for a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
import traitlets

from ...errors import PaifuserError, RecipeError
from ...figures.sensitivity import title
from ...formats import NAMES
from ...recipe import Recipe
from ...records import Estimate, Sensitivity
from ...session.queries import SENSITIVITY
from ..panel import Panel
from ..section import Section
from ..wire import numbered


class SensitivityPanel(Panel):
    """`panel.chosen` is the format that was chosen for each layer, and can be set;
    `panel.recipe` is that choice as a recipe.
    """

    chosen: traitlets.Dict[str, str] = traitlets.Dict(
        help="layer → the format that was chosen for it"
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


def packed_sensitivity(found: Sensitivity) -> dict[str, Any]:
    """Layers in their order; for each format the estimates as two columns of float32, where NaN is
    what is not known.
    """
    judged = next((one for one in found.methods if one.name == found.method), None)
    agreement = judged.agreement if judged is not None else {}
    scores = [row.scores for row in found.rows]
    return {
        **found.model_dump(
            include={"workload", "machine", "unit", "method", "examples", "is_interrupted"},
            mode="json",
        ),
        "title": title(found),
        "notes": list(found.notes),
        "formats": list(found.formats),
        "choices": [
            name for name in found.formats if name in NAMES
        ],  # what can be run, not only looked at
        "agreement": {name: value for name, value in agreement.items() if math.isfinite(value)},
        "layer": [row.layer for row in found.rows],
        "kind": numbered(row.kind for row in found.rows),
        "note": numbered(row.note or "" for row in found.rows),
        "parameters": numpy.asarray([row.parameters for row in found.rows], "<f4").tobytes(),
        "predicted": {
            name: _estimates([one.get(name, {}).get(found.method) for one in scores])
            for name in found.formats
        },
        "measured": {
            name: _estimates([one.get(name, {}).get("ablation") for one in scores])
            for name in found.formats
        },
    }


def _estimates(found: Sequence[Estimate | None]) -> dict[str, bytes]:
    values = [math.nan if one is None else one.value for one in found]
    errors = [math.nan if one is None or one.error is None else one.error for one in found]
    return {
        "value": numpy.asarray(values, "<f4").tobytes(),
        "error": numpy.asarray(errors, "<f4").tobytes(),
    }


SECTION = Section(
    "sensitivity",
    record=Sensitivity,
    pack=packed_sensitivity,
    panel=SensitivityPanel,
    title="Sensitivity",
    is_wide=True,
    is_always_shown=True,
    requests={"sensitivity": lambda bench, request: bench.session.query("sensitivity")},
    queries=(SENSITIVITY,),
    layers=lambda record: (row.layer for row in record.rows),
)
