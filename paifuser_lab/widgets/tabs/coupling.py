"""Which channels are removed together, and what the model would cost without some of them."""

from __future__ import annotations

from typing import Any

from ...records import Coupling, CutCost
from ...session.queries import COUPLING
from ..section import Section
from ..wire import exact, integers, numbered, ragged


def packed_coupling(found: Coupling) -> dict[str, Any]:
    """The groups in their order, and the members of one after those of the other."""
    members = [member for group in found.groups for member in group.members]
    return {
        "title": found.title,
        "workload": found.workload,
        "name": [group.name for group in found.groups],
        "width": integers(group.width for group in found.groups),
        "unit": integers(group.unit for group in found.groups),
        "pinned": numbered(group.pinned or "" for group in found.groups),
        "count": integers(len(group.members) for group in found.groups),
        "layer": numbered(member.layer for member in members),
        "parameter": numbered(member.parameter for member in members),
        "kind": numbered(member.kind for member in members),
    }


def packed_cut_cost(found: CutCost) -> dict[str, Any]:
    """Lengths, weights and layers as columns; of each the lengths that it has, one row after the
    other. Numbers are those of Python.
    """
    stairs = {
        str(place): [list(step) for step in layer.stairs]
        for place, layer in enumerate(found.layers)
        if layer.stairs
    }
    return {
        **found.model_dump(include={"latency_ms", "other_parameters", "other_flops"}),
        "fixed": integers(length.fixed for length in found.lengths),
        "groups": ragged([group for group, _ in length.terms] for length in found.lengths),
        "places": ragged([places for _, places in length.terms] for length in found.lengths),
        "times": exact(one.times for one in found.weights),
        "weights": ragged(one.lengths for one in found.weights),
        "flops": exact(one.flops for one in found.layers),
        "ms": exact(one.ms for one in found.layers),
        "layers": ragged(one.lengths for one in found.layers),
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
    queries=(COUPLING,),
)
