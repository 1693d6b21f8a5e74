"""The section of a memory timeline: the memory of one run over time."""

from __future__ import annotations

from typing import Any

import numpy

from ...records import MemoryTimeline
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


SECTION = Section("memory", record=MemoryTimeline, pack=packed_memory)
