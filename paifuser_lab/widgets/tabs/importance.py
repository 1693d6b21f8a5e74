"""The section of channel importance: a threshold over all layers or one decides what is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy
import traitlets

from ...errors import PaifuserError, RecipeError
from ...pruning.groups.scores import default_importance
from ...records import CutCost, Importance, Measurement
from ...records.text import readable_ms
from ...saliency.channels import CHANNEL_ESTIMATORS
from ...saliency.estimate_channels import cut_note
from ...session.state import State
from ...variant.recipe import Recipe
from ...views.importance import can_lose, over_all, picture, shares
from ...views.picture import Handle, Picture
from ...workload import Workload
from ..details import current
from ..panel import AskedPanel
from ..recipe_edits import without_layers
from ..section import Bench, Context, Request, Section, no_weights
from ..wire import pictured

# with any other option, the step selects layers by itself
EXPLICIT_OPTIONS = {"layers", "importance", "seed", "protect", "repair"}
WILDCARDS = frozenset("*?[")
BY_STAIRS = "by the measured time of its layers at other widths"
BY_SHARE = "each layer's measured time in proportion to its arithmetic"


def pruning(ratios: Mapping[str, float], method: str) -> dict[str, Any]:
    """The step that removes these shares by the shown importance."""
    scores = {"importance": method} if method in CHANNEL_ESTIMATORS else {}
    return {"prune": {"layers": dict(ratios), **scores}}


class ImportancePanel(AskedPanel):
    """`panel.kept` is how many channels of each layer are kept, `panel.threshold` the threshold
    over all layers; both can be set.

    `panel.recipe` removes the other channels. `panel.live` is the threshold while it is dragged,
    ten times a second at most, and `panel.cut` what the page shows of it.
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
    cut: traitlets.Dict[str, Any] = traitlets.Dict(
        help="how many channels are kept, also while a threshold is dragged, as the page shows it"
    ).tag(sync=True)

    def __init__(self, importance: Importance) -> None:
        self.found, self.thresholds = importance, over_all(importance)
        super().__init__(
            "importance", importance, kept={row.layer: row.channels for row in importance.rows}
        )
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
            if not 1 <= count <= row.channels:
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

    @traitlets.observe("kept", "live")
    def _pack_cut(self, change: Any) -> None:
        kept = dict(self.kept) | (dragged(self.found, self.live) if self.live else {})
        self.cut = packed_kept(self.found, kept, self.thresholds)

    def serve(self, request: Request) -> None:
        """Keep so many channels of a layer, or apply a threshold to all (the layer is '')."""
        if layer := request["layer"]:
            self.kept = dict(self.kept) | {layer: request["kept"]}
            return
        self.threshold = request["threshold"]
        # also if the threshold is unchanged: a layer may have been set by itself since
        self.kept = self.found.kept(request["threshold"])


def packed_importance(importance: Importance) -> dict[str, Any]:
    """The pictures of its layers, and the thresholds over all of them."""
    return {
        "layer": [row.layer for row in importance.rows],
        "cut_by": importance.cut_by or cut_note(importance.method),
        "picture": pictured(picture(importance, most=0)),
        "all": pictured(over_all(importance)),
    }


def dragged(importance: Importance, threshold: Mapping[str, Any]) -> dict[str, int]:
    """How many channels are kept by a threshold of one layer, or of all."""
    if layer := threshold["layer"]:
        return {layer: int(threshold["kept"])}
    return importance.kept(threshold["threshold"])


def packed_kept(importance: Importance, kept: Mapping[str, int], all_: Handle) -> dict[str, Any]:
    """The kept channels of each layer, as a picture and in words, and the threshold's position."""
    whole, count = importance.channels, sum(kept.values())
    stops = numpy.abs(numpy.asarray(all_.figures[0].values) - count)
    rows = Picture("", "share of channels kept, by layer", ((shares(importance, kept),),))
    return {
        "kept": dict(kept),
        "summary": f"{count:,} of {whole:,} channels kept · {count / (whole or 1):.1%}",
        "stop": int(stops.argmin()),
        "shares": pictured(rows),
    }


def with_pruning(recipe: Recipe, ratios: Mapping[str, float], method: str) -> Recipe:
    """The recipe that removes a share of the channels of some layers; 0 withdraws the choice."""
    removed = {layer: ratio for layer, ratio in ratios.items() if ratio > 0}
    recipe = without_layers(recipe, "prune", ratios.keys() - removed.keys(), alone=("ratio", "to"))
    return recipe.with_step(pruning(removed, method)) if removed else recipe


def pruned(recipe: Recipe) -> dict[str, float]:
    """The share of channels to remove, for each layer chosen by name."""
    return {
        layer: ratio
        for step in recipe
        if step.kind == "prune"
        for layer, ratio in step.options.get("layers", {}).items()
    }


def is_predicted(recipe: Recipe) -> bool:
    """Whether the recipe cuts only shares of layers that it names, once."""
    steps = [step for step in recipe if step.kind == "prune"]
    is_plain = all(WILDCARDS.isdisjoint(layer) for layer in pruned(recipe))
    is_explicit = all(step.options.keys() <= EXPLICIT_OPTIONS for step in steps)
    return is_plain and is_explicit and len(steps) <= 1


def packed_cut(state: State, threshold: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """What is kept, and what that saves: by the recipe, or by a threshold that is being dragged."""
    found, recipe = state.importance, state.recipe
    if found is None:
        return {}
    if threshold:
        recipe = with_pruning(recipe, _ratios(found, threshold), found.method)
    all_ = context.once("thresholds", lambda: over_all(found), found)
    packed = packed_kept(found, _kept(found, pruned(recipe)), all_)
    if state.cut_cost is None:
        return packed
    rows = forecast(state, recipe, state.cut_cost) if is_predicted(recipe) else []
    waiting = "being measured …" if pruned(recipe) and state.status != "idle" else ""
    return packed | {
        "rows": rows,
        "line": _line(rows),
        "note": _note(recipe),
        "waiting": "after the line is let go, measured" if threshold else waiting,
        "widths": list(state.cut_cost.widths(pruned(recipe))),
    }


def _note(recipe: Recipe) -> str:
    """What the figures do not include."""
    if not is_predicted(recipe):
        return "The recipe also cuts by a rule of its own, of which nothing is predicted here."
    others = sum(step.kind != "prune" for step in recipe)
    if not others or not pruned(recipe):
        return ""
    steps = "other step" if others == 1 else f"{others} other steps"
    return f"Achieved values include the {steps} of the recipe; predicted ones are the cut alone."


def _kept(importance: Importance, ratios: Mapping[str, float]) -> dict[str, int]:
    """How many channels the step `prune` keeps of each layer."""
    kept = {row.layer: row.channels for row in importance.rows}
    for row in filter(can_lose, importance.rows):
        share = 1 - ratios.get(row.layer, 0.0)
        kept[row.layer] = max(1, math.floor(row.channels * share + 0.5))
    return kept


def forecast(state: State, recipe: Recipe, cost: CutCost) -> list[dict[str, str]]:
    """Predicted figures of a cut; achieved ones where it is that of the state and measured."""
    whole, cut = cost.predict(cost.full), cost.predict(cost.widths(pruned(recipe)))
    compared = state.comparison
    before = compared[compared.baseline] if compared is not None else None
    is_measured = recipe is state.recipe and pruned(recipe)
    now = current(compared) if compared is not None and is_measured else None
    sizes = (before.parameters, now.parameters) if before and now else None
    work = (
        (2 * state.baseline.root.total_macs, 2 * state.profile.root.total_macs)
        if now and state.profile and state.baseline and state.profile is not state.baseline
        else None
    )
    # measured now: a machine that is slower today is slower for both
    base_ms = (before and before.latency_ms) or whole.latency_ms
    ms = base_ms * cut.latency_ms / (whole.latency_ms or 1.0)
    achieved = now.latency_ms if now else None
    by_stairs = any(layer.stairs for layer in cost.layers)
    rows = [
        _share_row("parameters", cut.parameters / (whole.parameters or 1), sizes),
        _share_row("FLOPs", cut.flops / (whole.flops or 1), work),
        {
            "name": "latency",
            "hint": BY_STAIRS if by_stairs else BY_SHARE,
            "predicted": _ms_text(ms, base_ms),
            "achieved": _ms_text(achieved, base_ms) if achieved else "",
            "error": _change(achieved / ms, is_rough=True) if achieved and ms else "",
        },
    ]
    if now and compared and compared.metric_name and now.metric is not None:
        rows.append(_metric_row(compared.metric_name, before, now.metric))
    return rows


def _share_row(
    name: str, share: float, measured: tuple[int | None, int | None] | None
) -> dict[str, str]:
    row = {"name": name, "predicted": _change(share), "achieved": "", "error": ""}
    before, now = measured or (None, None)
    if before and now is not None:
        row |= {"achieved": _change(now / before)}
        row |= {"error": _change(now / before / share, is_rough=True) if share else ""}
    return row


def _metric_row(name: str, before: Measurement | None, metric: float) -> dict[str, str]:
    """It is not predicted; its last value is shown."""
    known = before.metric if before else None
    earlier = f", before {known:.4f}" if known is not None else ""
    return {"name": name, "predicted": "", "achieved": f"{metric:.4f}{earlier}", "error": ""}


def _ms_text(ms: float, whole_ms: float) -> str:
    return f"{readable_ms(ms)} ms ({_change(ms / (whole_ms or 1.0))})"


def _change(ratio: float, is_rough: bool = False) -> str:
    """0.877 → '−12.3%', 1.25 → '+25.0%', roughly '+25%'; a negligible change is '0%'."""
    percent = 100 * (ratio - 1)
    text = f"{abs(percent):.{0 if is_rough and abs(percent) >= 9.95 else 1}f}"
    return "0%" if not float(text) else f"{'−' if percent < 0 else '+'}{text}%"


def _line(rows: Iterable[Mapping[str, str]]) -> str:
    """In one line: 'parameters −12.3% · FLOPs −9.0% · predicted 3.21 ms (−14.0%)'."""
    return " · ".join(
        f"{'predicted' if row['name'] == 'latency' else row['name']} {row['predicted']}"
        for row in rows
        if row["predicted"]
    )


def cut_by(state: State, work: Workload) -> str:
    """A note whether `prune` cuts by the shown scores or others, in the recipe or by a drag."""
    if state.importance is None:
        return ""
    steps = [step for step in state.recipe if step.kind == "prune"]
    shown = state.importance.method
    cut = steps[-1].options.get("importance", default_importance(work)) if steps else shown
    return cut_note(shown, cut)


def _ratios(record: Importance | None, request: Mapping[str, Any]) -> dict[str, float]:
    """The share to remove of one layer, or of all layers by one threshold."""
    if request["layer"] and "ratio" in request:
        return {request["layer"]: float(request["ratio"])}
    if record is None:
        raise PaifuserError("The channels have not been scored yet; find the importance first.")
    kept = dragged(record, request)
    return dict.fromkeys(kept, 0.0) | record.ratios(kept)


def _prune(bench: Bench, request: Request) -> None:
    """Remove the channels below a threshold, by the shown scores."""
    record = bench.session.state.importance
    method = record.method if record is not None else ""
    bench.recipe = with_pruning(bench.recipe, _ratios(record, request), method)


def _state(state: State, context: Context) -> dict[str, Any]:
    return {
        "pruned": pruned(state.recipe),
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
    is_always_shown=True,
    state=_state,
    requests={
        "importance": lambda bench, request: bench.session.query("importance"),
        "prune": _prune,
    },
    follow_up="coupling",
    layers=lambda record: (row.layer for row in record.rows),
)
