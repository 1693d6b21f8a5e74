"""The section of channel importance: a threshold over all layers, or over one, determines how many
channels of each are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy
import traitlets

from ...errors import PaifuserError, RecipeError
from ...pruning.groups.scores import default_importance
from ...records import Importance
from ...saliency.channels import CHANNEL_ESTIMATORS
from ...saliency.estimate_channels import cut_note
from ...session.state import State
from ...variant.recipe import Recipe
from ...workload import Workload
from ..details import current
from ..panel import Panel
from ..recipe_edits import without_layers
from ..section import Bench, Context, Request, Section, no_weights
from ..wire import numbered

# with any other option, the step selects layers by itself
EXPLICIT_OPTIONS = {"layers", "importance", "seed", "protect", "repair"}
WILDCARDS = frozenset("*?[")


def pruning(ratios: Mapping[str, float], method: str) -> dict[str, Any]:
    """The step that removes these shares by the shown importance."""
    scores = {"importance": method} if method in CHANNEL_ESTIMATORS else {}
    return {"prune": {"layers": dict(ratios), **scores}}


class ImportancePanel(Panel):
    """`panel.kept` is how many channels of each layer are kept, `panel.threshold` the threshold
    over all layers; both can be set.

    `panel.recipe` removes the other channels. `panel.live` is the threshold while it is dragged,
    ten times a second at most.
    """

    threshold = traitlets.Float(
        0.0, help="over all layers, in units of each layer's mean; channels below are removed"
    ).tag(sync=True)
    kept: traitlets.Dict[str, int] = traitlets.Dict(
        help="layer → how many of its channels are kept"
    ).tag(sync=True)
    live: traitlets.Dict[str, Any] = traitlets.Dict(
        help="while a threshold is dragged: its layer ('' for all), threshold, kept; else {}"
    ).tag(sync=True)

    def __init__(self, importance: Importance) -> None:
        self.found = importance
        super().__init__(
            "importance", importance, kept={row.layer: row.channels for row in importance.rows}
        )
        self.observe(self._on_requests, "requests")
        self.observe(self._on_threshold, "threshold")

    @property
    def recipe(self) -> Recipe:
        """The choice as a recipe; empty if every channel is kept."""
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
                    f"'{layer}' is not a layer of this importance; choose one of "
                    f"{', '.join(list(rows)[:8])} …"
                )
            row = rows[layer]
            if (
                isinstance(count, bool)
                or not isinstance(count, int)
                or not 1 <= count <= row.channels
            ):
                raise RecipeError(
                    f"'{layer}' cannot keep {count!r} channels; it has {row.channels} and must "
                    "keep 1 or more."
                )
            if row.is_answer and count < row.channels:
                raise RecipeError(
                    f"'{layer}' cannot keep {count} channels; {row.note or 'all are the output'}."
                )
        return {layer: proposal["value"].get(layer, row.channels) for layer, row in rows.items()}

    @traitlets.validate("threshold")
    def _check_threshold(self, proposal: Any) -> float:
        if not 0 <= proposal["value"] < float("inf"):
            raise RecipeError(
                f"{proposal['value']} is not a threshold; give 0 or more, in units of each layer's "
                "mean."
            )
        return float(proposal["value"])

    def _on_threshold(self, change: Any) -> None:
        self.kept = self.found.kept(change["new"])

    def _on_requests(self, change: Any) -> None:
        """Handle the page's requests in order, each once."""
        for request in sorted(change["new"], key=lambda request: request["id"]):
            if request["id"] <= self.served:
                continue
            with self.hold_sync():  # one message: "served" alone would redraw the old choice
                self.served = request["id"]
                if request["do"] != "keep":
                    raise PaifuserError(
                        f"The importance panel does not know '{request['do']}'; it knows keep."
                    )
                self._keep(request["layer"], request["threshold"], request["kept"])

    def _keep(self, layer: str, threshold: float, kept: int) -> None:
        """Keep so many channels of a layer, or apply a threshold to all (`layer` is '')."""
        if layer:
            self.kept = dict(self.kept) | {layer: kept}
            return
        self.threshold = threshold
        # also if the threshold is unchanged: a layer may have been set by itself since
        self.kept = self.found.kept(threshold)


def packed_importance(importance: Importance) -> dict[str, Any]:
    """The layers; the values of all channels in one column, in units of the layer's mean."""
    means = [row.mean or 1.0 for row in importance.rows]
    errors = [numpy.asarray(row.errors or [math.nan] * len(row.values)) for row in importance.rows]
    return {
        **importance.model_dump(
            include={"workload", "machine", "method", "unit", "examples", "is_interrupted"},
            mode="json",
        ),
        "title": f"{importance.workload}: how much each channel matters",
        "cut_by": importance.cut_by or cut_note(importance.method),
        "notes": list(importance.notes),
        "layer": [row.layer for row in importance.rows],
        "kind": numbered(row.kind for row in importance.rows),
        "note": numbered(row.note or "" for row in importance.rows),
        "channels": numpy.asarray([row.channels for row in importance.rows], "<i4").tobytes(),
        "judged": numpy.asarray([len(row.values) for row in importance.rows], "<i4").tobytes(),
        "is_answer": numpy.asarray([row.is_answer for row in importance.rows], "<i4").tobytes(),
        "mean": numpy.asarray([row.mean for row in importance.rows], "<f4").tobytes(),
        "value": b"".join(row.normalised.astype("<f4").tobytes() for row in importance.rows),
        "error": b"".join(
            (error / mean).astype("<f4").tobytes()
            for error, mean in zip(errors, means, strict=True)
        ),
    }


def with_pruning(recipe: Recipe, ratios: Mapping[str, float], method: str) -> Recipe:
    """The recipe that removes a share of the channels of some layers; 0 withdraws the choice."""
    removed = {layer: ratio for layer, ratio in ratios.items() if ratio > 0}
    recipe = without_layers(recipe, "prune", ratios.keys() - removed.keys(), alone=("ratio", "to"))
    return recipe.with_step(pruning(removed, method)) if removed else recipe


def pruned(state: State) -> dict[str, float]:
    """The share of channels to remove, for each layer chosen by name."""
    return {
        layer: ratio
        for step in state.recipe
        if step.kind == "prune"
        for layer, ratio in step.options.get("layers", {}).items()
    }


def cut_shown(state: State) -> dict[str, Any]:
    """The shares removed by layer, whether the page can predict the result, and the measured."""
    steps = [step for step in state.recipe if step.kind == "prune"]
    named = [
        (layer, ratio) for step in steps for layer, ratio in step.options.get("layers", {}).items()
    ]
    is_plain = all(WILDCARDS.isdisjoint(layer) for layer, _ in named)
    is_predicted = (
        is_plain
        and len(steps) <= 1
        and all(step.options.keys() <= EXPLICIT_OPTIONS for step in steps)
    )
    return {
        "removed": [list(pair) for pair in named],
        "is_predicted": is_predicted,
        "others": _other_steps(state.recipe),
        "achieved": achieved_cut(state) if named and is_predicted else None,
    }


def cut_by(state: State, work: Workload) -> str:
    """A note whether the step prune uses the shown scores or others; '' if none are shown.

    The recipe's step determines the scores; without one, those that a drag would choose.
    """
    if state.importance is None:
        return ""
    steps = [step for step in state.recipe if step.kind == "prune"]
    shown = state.importance.method
    cut = steps[-1].options.get("importance", default_importance(work)) if steps else shown
    return cut_note(shown, cut)


def achieved_cut(state: State) -> dict[str, Any] | None:
    """The measured figures of the recipe with the cut and of the baseline; None until measured."""
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


def _other_steps(recipe: Recipe) -> int:
    """The number of steps other than the cut, which contribute to what was measured."""
    return sum(step.kind != "prune" for step in recipe)


def _ratios(record: Importance | None, request: Request) -> dict[str, float]:
    """The share to remove of one layer, or of all layers by one threshold."""
    if request["layer"]:
        return {request["layer"]: float(request["ratio"])}
    if record is None:
        raise PaifuserError("The channels have not been scored yet; find the importance first.")
    kept = record.kept(request["threshold"])
    return dict.fromkeys(kept, 0.0) | record.ratios(kept)


def _prune(bench: Bench, request: Request) -> None:
    """Remove the channels below a threshold, by the shown scores."""
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
    title="Channels",
    hint="importance (saliency); structured pruning",
    tab="options",
    place="segment",
    absent=no_weights,
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={
        "importance": lambda bench, request: bench.session.query("importance"),
        "prune": _prune,
    },
    follow_up="coupling",
    layers=lambda record: (row.layer for row in record.rows),
)
