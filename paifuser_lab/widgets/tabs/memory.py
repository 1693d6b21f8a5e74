"""The section of memory: that of one call of the current model over time, and its peak as a map."""

from __future__ import annotations

from typing import Any

import numpy

from ...records import MemoryTimeline
from ...session.state import State
from ..section import Section


def packed_memory(timeline: MemoryTimeline) -> dict[str, Any]:
    """The events as columns; byte counts as float64, which is exact for them."""
    groups, group_of = timeline.groups
    return {
        **timeline.model_dump(include={"workload", "duration_ms", "layers", "note"}, mode="json"),
        "title": timeline.title,
        "sentence": timeline.sentence,
        "groups": list(groups),
        "group_of": numpy.asarray(group_of, "<u2").tobytes(),
        "weights_bytes": numpy.asarray(timeline.weights_bytes, "<f8").tobytes(),
        "time_ms": numpy.asarray(timeline.time_ms, "<f8").tobytes(),
        "change_bytes": numpy.asarray(timeline.change_bytes, "<f8").tobytes(),
        "layer_index": numpy.asarray(timeline.layer_index, "<u2").tobytes(),
        "is_workspace": numpy.asarray(timeline.is_workspace, "u1").tobytes(),
    }


def memory_now(state: State) -> MemoryTimeline | None:
    """The memory of a call with the current recipe; None if that was not measured."""
    return (state.record("memory") or {}).get(state.recipe.digest)


SECTION = Section(
    "memory",
    record=MemoryTimeline,
    pack=packed_memory,
    sources=lambda state: (memory_now(state),),
    title="Memory",
    hint="allocations of one call over time",
    tab="options",
    place="segment",
    is_wide=True,
    is_always_shown=True,
    requests={"memory": lambda bench, request: bench.session.query("memory")},
    layers=lambda record: record.layers,
)
