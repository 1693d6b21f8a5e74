"""The section of sensitivity: a click on a cell chooses a format for a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from ...errors import RecipeError
from ...model.formats import NAMES
from ...records import Estimate, Sensitivity
from ...variant.recipe import Recipe
from ...views.sensitivity import agreement, title
from ..panel import AskedPanel
from ..section import Request, Section, no_weights
from ..wire import floats, numbered, pictured


class SensitivityPanel(AskedPanel):
    """`panel.chosen` is the format chosen for each layer; `panel.recipe` that as a recipe."""

    chosen: traitlets.Dict[str, str] = traitlets.Dict(help="layer → the format chosen for it").tag(
        sync=True
    )

    def __init__(self, sensitivity: Sensitivity) -> None:
        self.found = sensitivity
        super().__init__("sensitivity", sensitivity)

    @property
    def recipe(self) -> Recipe:
        """The choice as a recipe for `lab.apply`; empty if nothing is chosen."""
        steps = [{"precision": {"layers": dict(self.chosen)}}] if self.chosen else []
        return Recipe(steps, workload=self.found.workload)

    @traitlets.validate("chosen")
    def _check(self, proposal: Any) -> dict[str, str]:
        known = {row.layer for row in self.found.rows}
        for layer, name in proposal["value"].items():
            if layer not in known:
                raise RecipeError(
                    f"'{layer}' is not a layer of this sensitivity; choose one of "
                    f"{', '.join(sorted(known)[:8])} …"
                )
            if name not in NAMES:
                raise RecipeError(
                    f"'{layer}' cannot run in {name!r}; choose one of {', '.join(NAMES)}."
                )
        return dict(proposal["value"])

    def serve(self, request: Request) -> None:
        """Choose a format for a layer; '' withdraws the choice."""
        chosen = dict(self.chosen) | {request["layer"]: request["name"]}
        self.chosen = {layer: name for layer, name in chosen.items() if name}


def packed_sensitivity(sensitivity: Sensitivity) -> dict[str, Any]:
    """Layers in their order; each format's estimates as two float32 columns, NaN if unknown."""
    scores = [row.scores for row in sensitivity.rows]
    return {
        **sensitivity.model_dump(
            include={"machine", "unit", "method", "examples", "is_interrupted"},
        ),
        "title": title(sensitivity),
        "notes": list(sensitivity.notes),
        "formats": list(sensitivity.formats),
        # formats that a layer can run in, not only be estimated in
        "choices": [name for name in sensitivity.formats if name in NAMES],
        "agreement": pictured(agreement(sensitivity)),
        "layer": [row.layer for row in sensitivity.rows],
        "kind": numbered(row.kind for row in sensitivity.rows),
        "note": numbered(row.note or "" for row in sensitivity.rows),
        "parameters": floats(row.parameters for row in sensitivity.rows),
        "predicted": {
            name: _estimates([row.get(name, {}).get(sensitivity.method) for row in scores])
            for name in sensitivity.formats
        },
        "measured": {
            name: _estimates([row.get(name, {}).get("ablation") for row in scores])
            for name in sensitivity.formats
        },
    }


def _estimates(estimates: Sequence[Estimate | None]) -> dict[str, bytes]:
    return {
        name: floats(None if score is None else getattr(score, name) for score in estimates)
        for name in ("value", "error")
    }


SECTION = Section(
    "sensitivity",
    record=Sensitivity,
    pack=packed_sensitivity,
    panel=SensitivityPanel,
    title="Formats",
    hint="sensitivity: rise of the loss when one layer is rounded",
    tab="options",
    place="segment",
    absent=no_weights,
    is_always_shown=True,
    requests={"sensitivity": lambda bench, request: bench.session.query("sensitivity")},
    layers=lambda record: (row.layer for row in record.rows),
)
