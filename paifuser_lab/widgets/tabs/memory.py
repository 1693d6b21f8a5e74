"""The section of memory: of one call of the current model over time, and a map of one moment."""

from __future__ import annotations

from typing import Any

from ...records import MemoryTimeline
from ...session.state import State
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
        "row": at,
        "peak_bytes": timeline.peak_bytes,
        "weights_bytes": timeline.total_weights_bytes,
    }


def _measure(bench: Bench, request: Request) -> None:
    if bench.session.state.record(MOMENT) is not None:  # another call has other moments
        bench.session.show(MOMENT, None)
    bench.session.query("memory")


def _choose(bench: Bench, request: Request) -> None:
    bench.session.show(MOMENT, (bench.recipe.digest, request["row"]))


def _sources(state: State) -> tuple[Any, ...]:
    """The timeline, and the moment that was chosen in it: another recipe has other moments."""
    recipe, row = state.record(MOMENT) or ("", None)
    return of_recipe(state, "memory"), row if recipe == state.recipe.digest else None


SECTION = Section(
    "memory",
    record=MemoryTimeline,
    pack=packed_memory,
    panel=MemoryPanel,
    sources=_sources,
    title="Memory",
    hint="allocations of one call over time",
    tab="options",
    place="segment",
    is_always_shown=True,
    requests={
        "memory": _measure,
        "memory_moment": _choose,
    },
    layers=lambda record: record.layers,
)
