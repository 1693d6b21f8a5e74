"""The section of the graph: blocks fold, nodes have colours, the recipe is edited for nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...errors import RecipeError
from ...jobs.queries import Query, QueryContext, Records
from ...model.layers import channel_of
from ...records import Coupling, FusionMap, ModelGraph, Profile, Sensitivity
from ...session.state import State
from ...variant.recipe import Recipe
from ...views.graph import drawn, laid_out
from ...views.graph_colours import Known, colours_by, names_of
from ...workload import Workload
from ..section import Bench, Request, Section
from ..wire import integers, pictured
from .layers import formats_in, obstacles, with_precision

CUT = 0.25  # the share of channels that one click on "prune" cuts
KEEP = 0.5  # the share of keys that sparse attention keeps, until the section of attention says


@dataclass(frozen=True)
class Shown:
    """How the graph is seen: which blocks are unfolded (None: as at first), and its colours."""

    unfolded: frozenset[str] | None = None
    colour: str = "time"


def packed_graph(
    graph: ModelGraph | None,
    shown: Shown | None = None,
    profile: Profile | None = None,
    sensitivity: Sensitivity | None = None,
    fusions: FusionMap | None = None,
    coupling: Coupling | None = None,
    recipe: Recipe | None = None,
) -> dict[str, Any] | None:
    """The picture of the nodes seen, and what the page needs to go along edges and to fold."""
    if graph is None:
        return None
    shown = shown or Shown()
    known = Known(
        profile, sensitivity, fusions, coupling, formats_in(recipe or Recipe([]), graph.classes)
    )
    layout = laid_out(graph, unfolded_in(graph, shown))
    names = names_of(known)
    colour = shown.colour if shown.colour in names else next(iter(names), "")
    index = {node.key: number for number, node in enumerate(layout.nodes)}
    around = [graph.blocks[graph.operators[node.operators[0]].layer] for node in layout.nodes]
    inside = [
        next((block for block in reversed(blocks) if block != node.key), "")
        for node, blocks in zip(layout.nodes, around, strict=True)
    ]
    return pictured(drawn(graph, layout, colours_by(colour, graph, layout.nodes, known))) | {
        "key": [node.key for node in layout.nodes],
        "layer": [node.layer for node in layout.nodes],
        "block": inside,
        "canUnfold": [node.can_unfold for node in layout.nodes],
        "sources": integers(index[edge.source] for edge in layout.edges),
        "targets": integers(index[edge.target] for edge in layout.edges),
        "size": list(layout.size),
        "colours": names,
        "colour": colour,
    }


def unfolded_in(graph: ModelGraph, shown: Shown) -> frozenset[str]:
    """The blocks that are unfolded."""
    return graph.unfolded_at_first() if shown.unfolded is None else shown.unfolded


def _sources(state: State) -> tuple[Any, ...]:
    graph = state.record("graph")
    if graph is None:
        return (None,)
    return (
        graph,
        state.record("graph_shown"),
        state.profile or state.baseline,
        state.sensitivity,
        (state.variant.fusions if state.variant else None) or state.fusions,
        state.coupling,
        state.recipe,
    )


def _find(context: QueryContext) -> Iterator[Records]:
    yield {"graph": context.work.graph()}


def _shown(bench: Bench) -> Shown:
    return bench.session.state.record("graph_shown") or Shown()


def _fold(bench: Bench, request: Request) -> None:
    """Fold or unfold a block; '' folds or unfolds all."""
    graph: ModelGraph = bench.session.state.record("graph")
    shown, block = _shown(bench), request["block"]
    blocks = frozenset(block for around in graph.blocks.values() for block in around)
    chosen = frozenset({block}) if block else blocks
    now = unfolded_in(graph, shown)
    unfolded = (now | chosen if request["isOpen"] else now - chosen) & blocks
    bench.session.show("graph_shown", replace(shown, unfolded=unfolded))


def _colour(bench: Bench, request: Request) -> None:
    bench.session.show("graph_shown", replace(_shown(bench), colour=request["name"]))


def layers_in(work: Workload, keys: list[str]) -> list[str]:
    """The innermost layers of some nodes that have a weight to change, in the model's order."""
    found = [
        name
        for name, module in work.model.named_modules()
        if channel_of(module) is not None
        and any(key in ("", name) or name.startswith(f"{key}.") for key in keys)
    ]
    if not found:
        raise RecipeError("What is chosen has no layer with a weight to change; choose another.")
    return found


def edited(recipe: Recipe, work: Workload, kind: str, keys: list[str], name: str = "") -> Recipe:
    """The recipe with another format, fewer channels, fusing or sparse attention in some nodes."""
    if kind == "fuse":
        # a place is named by its first layer: what follows it has none, and no match is an error
        layers = layers_in(work, keys)
        patterns = [
            key if key in layers else f"{key}.*"
            for key in keys
            if any(f"{layer}.".startswith(f"{key}.") for layer in layers)
        ]
        return recipe.with_step({"fuse": {"layers": patterns}})
    if kind == "attention":
        return _with_sparse(recipe, keys)
    layers = layers_in(work, keys)
    if kind == "prune":
        return recipe.with_step({"prune": {"layers": dict.fromkeys(layers, CUT)}})
    barred: dict[str, str] = {}
    for layer in layers:
        why = obstacles(work.model.get_submodule(layer)) if name else {}
        reason = why if isinstance(why, str) else why.get(name)
        if reason:
            barred[layer] = reason
        else:
            recipe = with_precision(recipe, layer, name)
    if len(barred) == len(layers):
        layer, reason = next(iter(barred.items()))
        raise RecipeError(f"'{layer}' cannot be in {name}: {reason}.")
    return recipe


def _with_sparse(recipe: Recipe, layers: list[str]) -> Recipe:
    """More layers in the first step that keeps a part of the keys, unless it is for all of them."""
    for at, step in enumerate(recipe):
        options = step.options
        if step.kind == "attention" and "keep" in options:
            if "layers" not in options:
                return recipe
            more = dict.fromkeys([*options["layers"], *layers])
            steps: list[Any] = list(recipe)
            steps[at] = {step.kind: options | {"layers": list(more)}}
            return recipe.of(steps)
    return recipe.with_step({"attention": {"keep": KEEP, "layers": layers}})


def _edit(bench: Bench, request: Request) -> None:
    work = bench.session.work
    bench.recipe = edited(
        bench.recipe, work, request["kind"], list(request["layers"]), request.get("name", "")
    )


SECTION = Section(
    "graph",
    record=ModelGraph,
    pack=packed_graph,
    title="Graph",
    hint="operators of one call, and the tensors between them",
    tab="graph",
    is_by_layer=True,
    is_always_shown=True,
    sources=_sources,
    requests={
        "graph": lambda bench, request: bench.session.query("graph"),
        "graph_fold": _fold,
        "graph_colour": _colour,
        "graph_edit": _edit,
    },
    queries=(Query("graph", "tracing", "what flows between the layers", 1.0, _find),),
    layers=lambda graph: (layer for layer in graph.classes),
)
