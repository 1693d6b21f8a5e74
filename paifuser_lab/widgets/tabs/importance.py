"""An importance to choose from: a threshold over all layers, or over one, says how many channels of
each are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy
import traitlets

from ...errors import PaifuserError, RecipeError
from ...pruning.groups.scores import default_importance
from ...recipe import Recipe
from ...records import Importance
from ...saliency.channels import CHANNEL_ESTIMATORS
from ...saliency.estimate_channels import cut_note
from ...session.queries import IMPORTANCE
from ...session.state import State
from ...workload import Workload
from ..details import current
from ..panel import Panel
from ..recipe_edits import without_layers
from ..section import Bench, Context, Request, Section
from ..wire import numbered

BY_NAME = {
    "layers",
    "importance",
    "seed",
    "protect",
    "repair",
}  # another option has the step choose layers by itself
PATTERN = frozenset("*?[")


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


def packed_importance(found: Importance) -> dict[str, Any]:
    """Layers in their order; the values of all channels in one column of float32, layer after
    layer, each in its layer's mean.
    """
    means = [row.mean or 1.0 for row in found.rows]
    errors = [numpy.asarray(row.errors or [math.nan] * len(row.values)) for row in found.rows]
    return {
        **found.model_dump(
            include={"workload", "machine", "method", "unit", "examples", "is_interrupted"},
            mode="json",
        ),
        "title": f"{found.workload}: how much each channel matters",
        "cut_by": found.cut_by or cut_note(found.method),
        "notes": list(found.notes),
        "layer": [row.layer for row in found.rows],
        "kind": numbered(row.kind for row in found.rows),
        "note": numbered(row.note or "" for row in found.rows),
        "channels": numpy.asarray([row.channels for row in found.rows], "<i4").tobytes(),
        "judged": numpy.asarray([len(row.values) for row in found.rows], "<i4").tobytes(),
        "is_answer": numpy.asarray([row.is_answer for row in found.rows], "<i4").tobytes(),
        "mean": numpy.asarray([row.mean for row in found.rows], "<f4").tobytes(),
        "value": b"".join(row.normalised.astype("<f4").tobytes() for row in found.rows),
        "error": b"".join(
            (one / mean).astype("<f4").tobytes() for one, mean in zip(errors, means, strict=True)
        ),
    }


def with_pruning(recipe: Recipe, ratios: Mapping[str, float], method: str) -> Recipe:
    """The recipe with a share of channels to remove from each of some layers; 0 takes the choice
    back.
    """
    wanted = {layer: ratio for layer, ratio in ratios.items() if ratio > 0}
    recipe = without_layers(recipe, "prune", ratios.keys() - wanted.keys(), alone=("ratio", "to"))
    return recipe.with_step(pruning(wanted, method)) if wanted else recipe


def pruned(state: State) -> dict[str, float]:
    """The share of channels that is chosen to be removed from each layer by itself."""
    return {
        layer: ratio
        for step in state.recipe
        if step.kind == "prune"
        for layer, ratio in step.options.get("layers", {}).items()
    }


def cut_shown(state: State) -> dict[str, Any]:
    """What is removed of which layer, in the order in which it counts, whether that is all that is
    cut, and what it did.
    """
    steps = [step for step in state.recipe if step.kind == "prune"]
    named = [
        (layer, ratio) for step in steps for layer, ratio in step.options.get("layers", {}).items()
    ]
    is_plain = all(PATTERN.isdisjoint(layer) for layer, _ in named)
    is_foretold = (
        is_plain and len(steps) <= 1 and all(step.options.keys() <= BY_NAME for step in steps)
    )
    return {
        "removed": [list(pair) for pair in named],
        "is_foretold": is_foretold,
        "others": _others(state.recipe),
        "achieved": achieved_cut(state) if named and is_foretold else None,
    }


def cut_by(state: State, work: Workload) -> str:
    """How the step prune cuts by the values that are shown, or by which others; '' where none are
    shown.

    A step in the recipe says by which; without one it is what a drag would choose.
    """
    if state.importance is None:
        return ""
    steps = [step for step in state.recipe if step.kind == "prune"]
    shown = state.importance.method
    cut = steps[-1].options.get("importance", default_importance(work)) if steps else shown
    return cut_note(shown, cut)


def achieved_cut(state: State) -> dict[str, Any] | None:
    """The recipe with the cut in it beside the model as it is; None as long as nothing was
    measured.
    """
    compared = state.comparison
    now = current(compared) if compared is not None else None
    if compared is None or now is None:
        return None
    before = compared[compared.baseline]
    figures = {
        "parameters": (before.parameters, now.parameters),
        "latency_ms": (before.latency_ms, now.latency_ms),
    }
    figures |= {"metric": (before.metric, now.metric)}
    if (
        state.profile is not None
        and state.baseline is not None
        and state.profile is not state.baseline
    ):
        figures |= {
            "flops": (2 * state.baseline.root.total_macs, 2 * state.profile.root.total_macs)
        }
    return {
        "before": {name: pair[0] for name, pair in figures.items()},
        "now": {name: pair[1] for name, pair in figures.items()},
        "metric_name": compared.metric_name,
    }


def _others(recipe: Recipe) -> int:
    """How many steps there are beside the cut, which have their part in what was measured."""
    return sum(step.kind != "prune" for step in recipe)


def _ratios(record: Importance | None, request: Request) -> dict[str, float]:
    """The share to remove of one layer, or of all by one threshold."""
    if request["layer"]:
        return {request["layer"]: float(request["ratio"])}
    if record is None:
        raise PaifuserError("The channels have not been scored yet; find the importance first.")
    kept = record.kept(threshold=request["threshold"])
    return dict.fromkeys(kept, 0.0) | record.ratios(kept)


def _prune(bench: Bench, request: Request) -> None:
    """Remove what a threshold removes, by the scores that the person saw."""
    record = bench.session.state.importance
    method = record.method if record is not None else ""
    bench.recipe = with_pruning(bench.recipe, _ratios(record, request), method)


def _state(state: State, context: Context) -> dict[str, Any]:
    return {
        "pruned": pruned(state),
        "cut": cut_shown(state),
        "cut_by": cut_by(state, context.work),
    }


SECTION = Section(
    "importance",
    record=Importance,
    pack=packed_importance,
    panel=ImportancePanel,
    title="Importance",
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={
        "importance": lambda bench, request: bench.session.query("importance"),
        "prune": _prune,
    },
    queries=(IMPORTANCE,),
    follow_up="coupling",
    layers=lambda record: (row.layer for row in record.rows),
)
