"""The section of sparse attention: a slider for the share of keys, a checkbox for each layer."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable
from typing import Any

import traitlets

from ...errors import RecipeError
from ...records import AttentionCost, AttentionLayer
from ...session.state import State
from ...steps import Step
from ...steps.attention import within
from ...variant import Variant
from ...variant.recipe import Recipe
from ...views.attention_cost import chart, error_scale
from ...views.heat_scale import Scale, cell_text
from ..panel import Panel
from ..section import Bench, Context, Request, Section, no_attention
from ..wire import pictured

DEFAULT_KIND = "topk"
LEAST_BAR = 0.03  # of the width


class AttentionPanel(Panel):
    """`panel.keep` is the share of keys that is kept, `panel.layers` the sparse layers; both can be
    set.

    `panel.step` is that choice as a step, `panel.recipe` as a recipe.
    """

    keep = traitlets.Float(help="the share of keys that is kept, one of those measured").tag(
        sync=True
    )
    layers: traitlets.List[str] = traitlets.List(help="the layers with sparse attention").tag(
        sync=True
    )

    def __init__(self, cost: AttentionCost) -> None:
        self.found = cost
        super().__init__(
            "attention",
            cost,
            keep=cost.keeps[0],
            layers=[row.layer for row in cost.sparse_layers],
        )

    @property
    def step(self) -> dict[str, Any]:
        """The choice as a step; {} if no layer is chosen."""
        return attention_step(self.found, self.keep, self.layers) if self.layers else {}

    @property
    def recipe(self) -> Recipe:
        """The choice as a recipe for `lab.apply`; empty if no layer is chosen."""
        return Recipe([self.step] if self.step else [], workload=self.found.workload)

    @traitlets.validate("keep")
    def _check_keep(self, proposal: Any) -> float:
        return checked_keep(self.found, proposal["value"])

    @traitlets.validate("layers")
    def _check_layers(self, proposal: Any) -> list[str]:
        return checked_layers(self.found, proposal["value"])


def packed_attention(cost: AttentionCost) -> dict[str, Any]:
    """The chart, the shares from the largest on, and each layer with its error at each of them."""
    speeds = [cost.speedup(index) for index in range(len(cost.keeps))]
    scale = error_scale(cost)
    return {
        "chart": pictured(chart(cost)),
        "kind": cost.kind,
        "able": [row.layer for row in cost.sparse_layers],
        "stops": [
            {"keep": keep, "text": f"{100 * keep:.3g} %", "is_slower": (speed or 1) < 1}
            for keep, speed in zip(cost.keeps, speeds, strict=True)
        ],
        "layers": [
            {
                "layer": row.layer,
                "size": _size(row),
                "reason": row.reason,
                "hint": _hint(row),
                "errors": [_error(error, scale) for error in row.errors],
            }
            for row in cost.layers
        ],
    }


def _size(row: AttentionLayer) -> str:
    """197 queries and keys, 3 heads → '197 × 3'."""
    tokens = f"{row.queries}" if row.queries == row.keys else f"{row.queries} of {row.keys}"
    return f"{tokens} × {row.heads}{', causal' if row.is_causal else ''}"


def _hint(row: AttentionLayer) -> str:
    share = "" if row.share is None else f"its attention takes {row.share:.1%} of the model's time"
    return "\n".join(filter(None, (row.layer, row.reason, share)))


def _error(error: float, scale: Scale | None) -> dict[str, Any]:
    """An error as text, its step of the colours and how long its bar is; NaN has neither."""
    step = -1 if scale is None else scale.step(error)
    share = scale.share(min(error, scale.top)) if scale is not None and error > 0 else 0.0
    look = "none" if math.isnan(error) else "below" if step < 0 else str(step)
    return {"text": cell_text(error), "look": f"pf-heat-{look}", "share": max(LEAST_BAR, share)}


def attention_step(cost: AttentionCost, keep: float, layers: Iterable[str]) -> dict[str, Any]:
    """The step that keeps a share of the keys in some layers; in all by leaving `layers` out."""
    able = [row.layer for row in cost.sparse_layers]
    requested = set(layers)
    chosen = [layer for layer in able if layer in requested]
    options: dict[str, Any] = {"kind": cost.kind, "keep": keep}
    return {"attention": options if chosen == able else options | {"layers": chosen}}


def checked_keep(cost: AttentionCost, keep: float) -> float:
    """The measured share that equals `keep`; raises if there is none."""
    match = next((share for share in cost.keeps if math.isclose(share, keep, rel_tol=1e-6)), None)
    if match is None:
        raise RecipeError(
            f"the share {keep!r} was not measured; choose one of "
            f"{', '.join(f'{share:g}' for share in cost.keeps)}."
        )
    return match


def checked_layers(cost: AttentionCost, layers: Any) -> list[str]:
    """Layers that can be sparse, in the order of the model."""
    able = [row.layer for row in cost.sparse_layers]
    reasons = {row.layer: row.reason for row in cost.layers if row.reason}
    for layer in layers:
        if layer in reasons:
            raise RecipeError(f"'{layer}' cannot use sparse attention: {reasons[layer]}.")
        if layer not in able:
            raise RecipeError(
                f"'{layer}' is not an attention layer; choose of "
                f"{', '.join(able[:8]) or 'none: there are none'}."
            )
    return [layer for layer in able if layer in set(layers)]


def with_attention(recipe: Recipe, cost: AttentionCost | None, request: dict[str, Any]) -> Recipe:
    """The recipe with the requested attention in the place of the earlier, or without it."""
    if cost is None:
        raise RecipeError("The cost of sparse attention is not known yet; measure it first.")
    if request["kind"] != cost.kind:
        raise RecipeError(
            f"{request['kind']!r} was not measured, {cost.kind!r} was; measure its cost first."
        )
    layers = checked_layers(cost, request["layers"])
    step = attention_step(cost, checked_keep(cost, request["keep"]), layers)
    earlier = [
        index
        for index, other in enumerate(recipe)
        if other.kind == "attention" and kind_of(other) == cost.kind
    ]
    if layers and not earlier:
        return recipe.with_step(step)
    steps: list[Any] = [
        step if layers and index == earlier[0] else other
        for index, other in enumerate(recipe)
        if index not in earlier[bool(layers) :]
    ]
    return recipe.of(steps)


def attending_now(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The options of the recipe's attention steps, by kind."""
    return {kind_of(step): step.options for step in recipe if step.kind == "attention"}


def taking_part(variant: Variant | None, recipe: Recipe) -> dict[str, list[str]]:
    """The sparse layers of the applied recipe, by the kind of attention; {} until it is applied."""
    if variant is None or variant.recipe != recipe:
        return {}
    applied = zip(variant.recipe, variant.remembered, strict=True)
    return {
        kind_of(step): list(memory.get("sparse", {}))
        for step, memory in applied
        if step.kind == "attention"
    }


def kind_of(step: Step) -> str:
    """The kind of an attention step; a step does not name the default."""
    return str(step.options.get("kind", DEFAULT_KIND))


def _find(bench: Bench, request: Request) -> None:
    bench.session.query("attention", kind=request["kind"])


def _choose(bench: Bench, request: Request) -> None:
    bench.recipe = with_attention(bench.recipe, bench.session.state.attention_cost, request)


def _state(state: State, context: Context) -> dict[str, Any]:
    names = [name for name, _ in context.work.model.named_modules() if name]
    attending = attending_now(state.recipe)
    cost = state.attention_cost
    if cost is not None and (picked := attending.get(cost.kind, {}).get("layers")):
        matched = {name for pattern in picked for name in fnmatch.filter(names, pattern)}
        able = [row.layer for row in cost.sparse_layers]
        attending[cost.kind] = attending[cost.kind] | {"layers": within(able, matched)}
    return {
        "attending": attending,
        "taking_part": taking_part(state.variant, state.recipe),
    }


SECTION = Section(
    "attention",
    record=AttentionCost,
    record_name="attention_cost",
    pack=packed_attention,
    panel=AttentionPanel,
    title="Attention",
    hint="sparse attention: top-k, block, window",
    tab="options",
    place="segment",
    absent=no_attention,
    is_always_shown=True,
    state=_state,
    requests={"attention_cost": _find, "attention": _choose},
    layers=lambda record: (row.layer for row in record.layers),
)
