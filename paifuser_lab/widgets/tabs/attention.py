"""What sparse attention costs, to choose from: a slider over the shares of the keys, and a tick for
each layer that takes part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, get_args

import traitlets

from ...errors import RecipeError
from ...recipe import Recipe
from ...records import AttentionCost, AttentionKind
from ...session.queries import ATTENTION
from ...session.state import State
from ...steps import Step
from ...variant import Variant
from ..panel import Panel
from ..section import Bench, Context, Request, Section
from ..wire import exact, floats, integers

DEFAULT = "topk"


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


def packed_attention(found: AttentionCost) -> dict[str, Any]:
    """The shares as columns, and the error of each layer at each of them, layer after layer; NaN
    where it cannot take part.
    """
    unknown = (math.nan,) * len(found.keeps)
    return {
        **found.model_dump(
            include={"machine", "kind", "metric", "note", "dense_ms", "dense_value"}, mode="json"
        ),
        "title": found.title,
        "keeps": exact(found.keeps),
        "errors": exact(found.errors),
        "latency_ms": exact(found.latency_ms),
        "values": exact(found.values),
        "layer": [row.layer for row in found.layers],
        "heads": integers(row.heads for row in found.layers),
        "queries": integers(row.queries for row in found.layers),
        "keys": integers(row.keys for row in found.layers),
        "is_causal": integers(row.is_causal for row in found.layers),
        "share": floats(row.share for row in found.layers),
        "reason": [row.reason for row in found.layers],
        "layer_errors": exact(error for row in found.layers for error in (row.errors or unknown)),
    }


def attention_step(found: AttentionCost, keep: float, layers: Iterable[str]) -> dict[str, Any]:
    """The step that keeps a share of the keys in some layers; they are left out where all that can
    take part do.
    """
    able = [row.layer for row in found.sparse_layers]
    named = set(layers)
    part = [layer for layer in able if layer in named]
    options: dict[str, Any] = {"kind": found.kind, "keep": keep}
    return {"attention": options if part == able else options | {"layers": part}}


def checked_keep(found: AttentionCost, keep: Any) -> float:
    """One of the shares that were looked at."""
    is_number = isinstance(keep, int | float) and not isinstance(keep, bool)
    near = next(
        (one for one in found.keeps if is_number and math.isclose(one, keep, rel_tol=1e-6)), None
    )
    if near is None:
        raise RecipeError(
            f"{keep!r} is no share that was looked at; choose one of "
            f"{', '.join(f'{one:g}' for one in found.keeps)}."
        )
    return near


def checked_layers(found: AttentionCost, layers: Any) -> list[str]:
    """Layers that can attend to a part, in the order of the model."""
    able = [row.layer for row in found.sparse_layers]
    reasons = {row.layer: row.reason for row in found.layers if row.reason}
    for layer in layers:
        if layer in reasons:
            raise RecipeError(f"'{layer}' cannot attend to a part of its keys: {reasons[layer]}.")
        if layer not in able:
            raise RecipeError(
                f"'{layer}' is no layer that attends; choose of "
                f"{', '.join(able[:8]) or 'none: there are none'}."
            )
    return [layer for layer in able if layer in set(layers)]


def checked_kind(kind: Any) -> str:
    """A kind of attention that can be looked at."""
    kinds = get_args(AttentionKind)
    if kind not in kinds:
        raise RecipeError(
            f"{kind!r} is no kind of sparse attention; choose one of {', '.join(kinds)}."
        )
    return str(kind)


def with_attention(recipe: Recipe, found: AttentionCost | None, request: dict[str, Any]) -> Recipe:
    """The recipe that keeps what the page asked for, in the place of what it kept before; no layer
    takes the step away.
    """
    if found is None:
        raise RecipeError(
            "The cost of attention to a part of the keys is not known yet; find it first."
        )
    if checked_kind(request["kind"]) != found.kind:
        raise RecipeError(
            f"{request['kind']!r} was not looked at, {found.kind!r} was; find what it costs first."
        )
    layers = checked_layers(found, request["layers"])
    step = attention_step(found, checked_keep(found, request["keep"]), layers)
    before = [
        place
        for place, one in enumerate(recipe)
        if one.kind == "attention" and kind_of(one) == found.kind
    ]
    if layers and not before:
        return recipe.with_step(step)
    steps: list[Any] = [
        step if layers and place == before[0] else one
        for place, one in enumerate(recipe)
        if place not in before[bool(layers) :]
    ]
    return recipe.of(steps)


def attending_now(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What the recipe's steps say, by the kind of attention."""
    return {kind_of(step): step.options for step in recipe if step.kind == "attention"}


def taking_part(variant: Variant | None, recipe: Recipe) -> dict[str, list[str]]:
    """The layers that do attend to a part, by the kind of attention; nothing of a recipe that is
    still being applied.
    """
    if variant is None or variant.recipe != recipe:
        return {}
    done = zip(variant.recipe, variant.remembered, strict=True)
    return {
        kind_of(step): list(kept.get("sparse", {}))
        for step, kept in done
        if step.kind == "attention"
    }


def kind_of(step: Step) -> str:
    """Which keys an attention step keeps; a step does not name the kind that goes without
    saying.
    """
    return str(step.options.get("kind", DEFAULT))


def _find(bench: Bench, request: Request) -> None:
    bench.session.query("attention", kind=checked_kind(request["kind"]))


def _choose(bench: Bench, request: Request) -> None:
    bench.recipe = with_attention(bench.recipe, bench.session.state.attention_cost, request)


def _state(state: State, context: Context) -> dict[str, Any]:
    return {
        "attending": attending_now(state.recipe),
        "taking_part": taking_part(state.variant, state.recipe),
    }


SECTION = Section(
    "attention",
    record=AttentionCost,
    record_name="attention_cost",
    pack=packed_attention,
    panel=AttentionPanel,
    title="Attention",
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={"attention_cost": _find, "attention": _choose},
    queries=(ATTENTION,),
    layers=lambda record: (row.layer for row in record.layers),
)
