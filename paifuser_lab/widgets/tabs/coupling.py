"""The section of channel coupling: which channels are removed together, and what the model would
cost without some of them.
"""

from __future__ import annotations

from typing import Any

from ...records import Coupling, CutCost
from ..section import Section
from ..wire import exact, integers, numbered, ragged


def packed_coupling(coupling: Coupling) -> dict[str, Any]:
    """The groups in their order; the members of all groups, group after group."""
    members = [member for group in coupling.groups for member in group.members]
    return {
        "title": coupling.title,
        "workload": coupling.workload,
        "name": [group.name for group in coupling.groups],
        "width": integers(group.width for group in coupling.groups),
        "unit": integers(group.unit for group in coupling.groups),
        "pinned": numbered(group.pinned or "" for group in coupling.groups),
        "count": integers(len(group.members) for group in coupling.groups),
        "layer": numbered(member.layer for member in members),
        "parameter": numbered(member.parameter for member in members),
        "kind": numbered(member.kind for member in members),
    }


def packed_cut_cost(cost: CutCost) -> dict[str, Any]:
    """Lengths, weights and layers as columns; the lengths of each as ragged rows of float64."""
    stairs = {
        str(index): [list(step) for step in layer.stairs]
        for index, layer in enumerate(cost.layers)
        if layer.stairs
    }
    return {
        **cost.model_dump(include={"latency_ms", "other_parameters", "other_flops"}),
        "fixed": integers(length.fixed for length in cost.lengths),
        "groups": ragged([group for group, _ in length.terms] for length in cost.lengths),
        "places": ragged([places for _, places in length.terms] for length in cost.lengths),
        "times": exact(weight.times for weight in cost.weights),
        "weights": ragged(weight.lengths for weight in cost.weights),
        "flops": exact(layer.flops for layer in cost.layers),
        "ms": exact(layer.ms for layer in cost.layers),
        "layers": ragged(layer.lengths for layer in cost.layers),
        "stairs": stairs,
    }


def _pack(coupling: Coupling | None, cost: CutCost | None = None) -> dict[str, Any] | None:
    if coupling is None:
        return None
    return packed_coupling(coupling) | ({"cost": packed_cut_cost(cost)} if cost is not None else {})


SECTION = Section(
    "coupling",
    record=Coupling,
    pack=_pack,
    sources=lambda state: (state.coupling, state.cut_cost),
)
