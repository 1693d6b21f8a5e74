"""The section of memory: of one call of the current model over time, and a map of one moment."""

from __future__ import annotations

from typing import Any

from ...records import MemoryTimeline
from ...views.memory import picture
from ..panel import AskedPanel
from ..section import Bench, Data, Request, Section, of_recipe
from ..wire import pictured

MOMENT = "memory_moment"  # the row of the curve whose map is shown


class MemoryPanel(AskedPanel):
    """A timeline alone; a click on the curve shows the map of that moment."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self.found = timeline
        super().__init__("memory", timeline)

    def serve(self, request: Request) -> None:
        self.data = packed_memory(self.found, request["row"]) or {}


def packed_memory(timeline: MemoryTimeline | None, row: Any = None) -> Data | None:
    """The pictures by layer and by category, and the bytes that the limit is compared with."""
    if timeline is None:
        return None
    at = row if isinstance(row, int) else None
    return {
        "layer": pictured(picture(timeline, at, "layer")),
        "category": pictured(picture(timeline, at, "category")),
        "peak_bytes": timeline.peak_bytes,
        "weights_bytes": timeline.total_weights_bytes,
    }


def _measure(bench: Bench, request: Request) -> None:
    if bench.session.state.record(MOMENT) is not None:  # another call has other moments
        bench.session.show(MOMENT, None)
    bench.session.query("memory")


SECTION = Section(
    "memory",
    record=MemoryTimeline,
    pack=packed_memory,
    panel=MemoryPanel,
    sources=lambda state: (of_recipe(state, "memory"), state.record(MOMENT)),
    title="Memory",
    hint="allocations of one call over time",
    tab="options",
    place="segment",
    is_always_shown=True,
    requests={
        "memory": _measure,
        "memory_moment": lambda bench, request: bench.session.show(MOMENT, request["row"]),
    },
    layers=lambda record: record.layers,
)
