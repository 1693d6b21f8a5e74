"""The section of memory: of one call of the current model over time, and a map of one moment."""

from __future__ import annotations

from typing import Any

from ...records import MemoryTimeline
from ...session.state import State
from ...views.memory import picture
from ..panel import AskedPanel
from ..section import Bench, Data, Request, Section
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


def memory_now(state: State) -> MemoryTimeline | None:
    """The memory of a call with the current recipe; None if that was not measured."""
    return (state.record("memory") or {}).get(state.recipe.digest)


def _measure(bench: Bench, request: Request) -> None:
    if bench.session.state.record(MOMENT) is not None:  # another call has other moments
        bench.session.show(MOMENT, None)
    bench.session.query("memory")


SECTION = Section(
    "memory",
    record=MemoryTimeline,
    pack=packed_memory,
    panel=MemoryPanel,
    sources=lambda state: (memory_now(state), state.record(MOMENT)),
    title="Memory",
    hint="allocations of one call over time",
    tab="options",
    place="segment",
    is_wide=True,
    is_always_shown=True,
    requests={
        "memory": _measure,
        "memory_moment": lambda bench, request: bench.session.show(MOMENT, request["row"]),
    },
    layers=lambda record: record.layers,
)
