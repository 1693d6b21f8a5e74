"""The section of a memory plan: the buffers of one call packed into one arena."""

from __future__ import annotations

from typing import Any

from ...records import MemoryPlan
from ...session.state import State
from ..section import Section
from ..wire import exact, integers, numbered


def packed_plan(plan: MemoryPlan) -> dict[str, Any]:
    """The buffers as columns; byte counts as float64, which is exact for them."""
    groups, group_of = plan.groups
    buffers = plan.buffers
    return {
        **plan.model_dump(include={"workload", "operators", "held_bytes", "note"}, mode="json"),
        "title": plan.title,
        "sentence": plan.sentence,
        "packed_bytes": plan.packed_bytes,
        "bound_bytes": plan.bound_bytes,
        "fullest": plan.fullest,
        "groups": list(groups),
        "group_of": integers(group_of),
        "layer": numbered(buffer.layer for buffer in buffers),
        "operator": numbered(buffer.operator for buffer in buffers),
        "begin": integers(buffer.begin for buffer in buffers),
        "end": integers(buffer.end for buffer in buffers),
        "size_bytes": exact(buffer.size_bytes for buffer in buffers),
        "offset_bytes": exact(buffer.offset_bytes for buffer in buffers),
        "alive_bytes": exact(plan.alive_bytes),
    }


def plan_now(state: State) -> MemoryPlan | None:
    """The plan of the current recipe; None if it was not asked for."""
    return (state.record("memory_plan") or {}).get(state.recipe.digest)


SECTION = Section(
    "memory_plan",
    record=MemoryPlan,
    pack=packed_plan,
    sources=lambda state: (plan_now(state),),
    title="Memory packing",
    tab="options",
    place="memory",
    is_wide=True,
    is_always_shown=True,
    requests={"memory_plan": lambda bench, request: bench.session.query("memory_plan")},
    layers=lambda plan: {buffer.layer for buffer in plan.buffers},
)
