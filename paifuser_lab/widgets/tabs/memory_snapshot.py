"""The view of a memory snapshot: by category over time, the segments at a moment, and who held the
peak. It is about a file or another run, so the workbench has no section of it.
"""

from __future__ import annotations

from typing import Any

from ...records import MemorySnapshot, SnapshotMap
from ..section import Section
from ..wire import exact, integers


def packed_snapshot(snapshot: MemorySnapshot) -> dict[str, Any]:
    """The timeline and the maps as columns, the rest as tables of text."""
    ended, replayed = snapshot.out_of_memory, snapshot.replay
    return {
        "title": snapshot.title,
        "sentence": snapshot.sentence,
        "unit": snapshot.unit,
        "categories": list(snapshot.categories),
        "time": exact(snapshot.time_ms),
        "held_bytes": [exact(column) for column in snapshot.held_bytes],
        "reserved_bytes": exact(() if snapshot.device_type == "cpu" else snapshot.reserved_bytes),
        "peak_time": snapshot.peak_ms,
        "peak_bytes": snapshot.peak_bytes,
        "refused_time": ended.time_ms if ended is not None else None,
        "refused_bytes": ended.requested_bytes if ended is not None else None,
        "maps": [_packed_map(moment) for moment in snapshot.maps],
        "sites": snapshot.table(),
        "layers": snapshot.layer_table(),
        "out_of_memory": ended.sentence if ended is not None else "",
        "remedies": ended.table() if ended is not None else [],
        "replay": replayed.sentence if replayed is not None else "",
        "settings": replayed.table() if replayed is not None else [],
    }


def _packed_map(moment: SnapshotMap) -> dict[str, Any]:
    kinds = zip(moment.segment_is_expandable, moment.segment_is_large, strict=True)
    return {
        "moment": moment.moment,
        "sentence": moment.sentence,
        "segment_bytes": exact(moment.segment_bytes),
        "segment_allocated": exact(moment.segment_allocated_bytes),
        "segment_stream": integers(moment.segment_stream),
        "segment_kind": [
            "expandable" if is_expandable else "large" if is_large else "small"
            for is_expandable, is_large in kinds
        ],
        "sites": list(moment.sites),
        "categories": list(moment.categories),
        "block_segment": integers(moment.block_segment),
        "block_offset": exact(moment.block_offset_bytes),
        "block_bytes": exact(moment.block_bytes),
        "block_site": integers(moment.block_site),
        "block_category": integers(moment.block_category),
    }


SECTION = Section("memory_snapshot", record=MemorySnapshot, pack=packed_snapshot)
