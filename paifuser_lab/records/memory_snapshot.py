"""A snapshot of memory over time and by segment; its requests under other allocator settings."""

from __future__ import annotations

from typing import ClassVar

from .record import Frame, Record, TableRecord, frame_of, frame_of_columns
from .table import Columns, Table
from .text import counted, in_figures, readable_bytes, readable_ratio, readable_share


class ReplayRow(Record):
    """The simulated allocator under one set of settings."""

    settings: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    device_calls: int  # segments taken from and given back to the device, or pages mapped
    refused: int = 0  # requests that did not fit under the limit

    @property
    def overhead(self) -> float:
        """The share of the peak of reserved memory that was not allocated at the most."""
        reserved = self.peak_reserved_bytes
        return 1 - self.peak_allocated_bytes / reserved if reserved else 0.0


class Replay(TableRecord):
    """The recorded requests of a snapshot under several settings; the first are its own."""

    columns: ClassVar[Columns] = {
        "settings": "settings",
        "reserved": lambda row: readable_bytes(row.peak_reserved_bytes),
        "allocated": lambda row: readable_bytes(row.peak_allocated_bytes),
        "not allocated": lambda row: readable_share(row.overhead),
        "device calls": "device_calls",
        "refused": "refused",
    }
    text_columns = ("settings", "what", "outcome")

    snapshot: str
    device: int
    requests: int
    recorded_peak_reserved_bytes: int
    limit_bytes: int | None = None
    rows: tuple[ReplayRow, ...]

    @property
    def agreement(self) -> float | None:
        """The simulated peak under the snapshot's own settings, relative to the recorded one."""
        if not self.rows or not self.recorded_peak_reserved_bytes:
            return None
        return self.rows[0].peak_reserved_bytes / self.recorded_peak_reserved_bytes

    @property
    def best(self) -> ReplayRow | None:
        """The settings that reserve least and refuse nothing more than others."""
        return min(self.rows, key=lambda row: (row.refused, row.peak_reserved_bytes), default=None)

    @property
    def title(self) -> str:
        return (
            f"{self.snapshot}, device {self.device} · {counted(self.requests, 'request')} replayed"
            f" · {readable_bytes(self.recorded_peak_reserved_bytes)} reserved at the peak"
        )

    @property
    def sentence(self) -> str:
        if self.agreement is None or self.best is None:
            return "The snapshot holds no request to replay."
        own, best = self.rows[0], self.best
        near = (
            f"Under its own settings the simulator reserves {readable_ratio(self.agreement)} "
            "times what was recorded."
        )
        if (best.refused, best.peak_reserved_bytes) >= (own.refused, own.peak_reserved_bytes):
            return f"{near} No other settings reserve less."
        less = 1 - best.peak_reserved_bytes / max(1, own.peak_reserved_bytes)
        if less > 0:
            return f"{near} Least is reserved with {best.settings}: {readable_share(less)} less."
        return f"{near} Fewest requests are refused with {best.settings}."

    @property
    def frame(self) -> Frame:
        return frame_of(row.model_dump() | {"overhead": row.overhead} for row in self.rows)


class Remedy(Record):
    """Something that might have made a refused request fit."""

    what: str
    fits: bool
    outcome: str


class OutOfMemory(TableRecord):
    """A request that the device refused, what memory was like, and what would have helped."""

    columns: ClassVar[Columns] = {
        "what": "what",
        "fits": lambda remedy: "yes" if remedy.fits else "no",
        "outcome": "outcome",
    }
    text_columns = ("settings", "what", "outcome")
    row_field = "remedies"

    time_ms: float
    is_timed: bool = True  # otherwise `time_ms` is the number of the event
    requested_bytes: int
    site: str
    free_on_device_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int
    remedies: tuple[Remedy, ...] = ()

    @property
    def free_in_segments_bytes(self) -> int:
        """Free memory that the allocator held and could not use for the request."""
        return max(0, self.reserved_bytes - self.allocated_bytes)

    @property
    def sentence(self) -> str:
        helped = [remedy.what for remedy in self.remedies if remedy.fits]
        helps = " None of the remedies tried here would have made it fit."
        if helped:
            helps = f" It would have fitted {'; or '.join(helped)}."
        when = f"{in_figures(self.time_ms, 4)} ms" if self.is_timed else f"event {self.time_ms:.0f}"
        return (
            f"Out of memory at {when}: {self.site} asked for "
            f"{readable_bytes(self.requested_bytes)}. The device had "
            f"{readable_bytes(self.free_on_device_bytes)} left; of the "
            f"{readable_bytes(self.reserved_bytes)} that torch held, "
            f"{readable_bytes(self.free_in_segments_bytes)} were free, the largest piece "
            f"{readable_bytes(self.largest_free_bytes)}.{helps}"
        )

    @property
    def title(self) -> str:
        return self.sentence


MAX_ROWS = 15
_WORDS = ("call site", "category")
_LAYER_WORDS = ("layer", "category")
BY_LAYER = "Largest by layer at the peak."


class SiteMemory(Record):
    """The memory that one call site holds at a moment."""

    site: str
    category: str
    blocks: int
    held_bytes: int


class LayerMemory(Record):
    """The memory of one category that one layer holds at a moment; '' is outside of all layers."""

    layer: str
    category: str
    blocks: int
    held_bytes: int


class SnapshotMap(Record):
    """The segments of a moment and the blocks in them, as columns.

    `block_segment` is an index of the segments, `block_site` one of `sites`, `block_category` one
    of `categories`. What no block covers is free.
    """

    moment: str
    time_ms: float
    segment_bytes: tuple[int, ...] = ()
    segment_allocated_bytes: tuple[int, ...] = ()
    segment_stream: tuple[int, ...] = ()
    segment_is_large: tuple[bool, ...] = ()
    segment_is_expandable: tuple[bool, ...] = ()
    sites: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    block_segment: tuple[int, ...] = ()
    block_offset_bytes: tuple[int, ...] = ()
    block_bytes: tuple[int, ...] = ()
    block_site: tuple[int, ...] = ()
    block_category: tuple[int, ...] = ()
    blocks_left_out: int = 0
    requested_bytes: int = 0
    free_bytes: int = 0
    largest_free_bytes: int = 0

    @property
    def reserved_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(self.segment_bytes)

    @property
    def allocated_bytes(self) -> int:
        """The bytes of all blocks."""
        return sum(self.segment_allocated_bytes)

    @property
    def fragmentation(self) -> float:
        """The share of free memory that is not in the largest free piece."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0

    @property
    def sentence(self) -> str:
        """Reserved, allocated and free memory, and how fragmented it is."""
        rounding = max(0, self.allocated_bytes - self.requested_bytes)
        return (
            f"{self.moment}: {readable_bytes(self.reserved_bytes)} in "
            f"{counted(len(self.segment_bytes), 'segment')}, "
            f"{readable_bytes(self.allocated_bytes)} of it allocated "
            f"({readable_bytes(rounding)} by rounding up) and {readable_bytes(self.free_bytes)} "
            f"free, the largest piece {readable_bytes(self.largest_free_bytes)}: fragmentation "
            f"{readable_share(self.fragmentation)}."
        )


class MemorySnapshot(TableRecord):
    """What a snapshot tells of one device. Columns of `time_ms`, thinned where there are many
    events, keep the peaks; `held_bytes` has a column for each category. On a CPU nothing is
    reserved, and there are no segments.
    """

    text_columns = _WORDS

    name: str
    device: int
    device_type: str = "cuda"
    devices: tuple[int, ...] = ()
    events: int = 0
    is_timed: bool = True  # otherwise `time_ms` numbers the events
    settings: str = ""
    categories: tuple[str, ...] = ()
    time_ms: tuple[float, ...] = ()
    held_bytes: tuple[tuple[int, ...], ...] = ()
    reserved_bytes: tuple[int, ...] = ()
    peak_ms: float = 0.0
    peak_bytes: int = 0
    peak_reserved_bytes: int = 0
    at_peak: tuple[SiteMemory, ...] = ()
    blocks_at_peak: int = 0
    layers: tuple[LayerMemory, ...] = ()  # the same by layer
    maps: tuple[SnapshotMap, ...] = ()
    replay: Replay | None = None
    out_of_memory: OutOfMemory | None = None

    @property
    def unit(self) -> str:
        """The unit of `time_ms`."""
        return "ms" if self.is_timed else "events"

    @property
    def title(self) -> str:
        if self.device_type == "cpu":
            return f"{self.name} on a CPU · {readable_bytes(self.peak_bytes)} at the peak"
        return (
            f"{self.name}, device {self.device} · {readable_bytes(self.peak_bytes)} allocated and "
            f"{readable_bytes(self.peak_reserved_bytes)} reserved at the peak"
        )

    @property
    def sentence(self) -> str:
        if not self.at_peak:
            return "Nothing is allocated in this snapshot."
        largest = self.at_peak[0]
        share = largest.held_bytes / self.peak_bytes if self.peak_bytes else 0.0
        when = (
            f" {in_figures(self.peak_ms, 4)} {self.unit} after its first event"
            if self.events
            else ""
        )
        return (
            f"Most is allocated{when}: {counted(self.blocks_at_peak, 'block')}. The largest part, "
            f"{readable_bytes(largest.held_bytes)} ({readable_share(share)}), was allocated at "
            f"{largest.site} ({largest.category})."
        )

    @property
    def captions(self) -> tuple[str, ...]:
        return (self.title, self.sentence, *(moment.sentence for moment in self.maps))

    @property
    def frame(self) -> Frame:
        """A row per moment of the timeline, a column per category."""
        columns = {"time_ms": self.time_ms, "reserved_bytes": self.reserved_bytes}
        held = dict(zip(self.categories, self.held_bytes, strict=True))
        return frame_of_columns(columns | held)

    def table(self) -> list[dict[str, str]]:
        """The call sites that hold most at the peak, as text."""
        return [{"call site": row.site, **self._shares(row)} for row in self.at_peak[:MAX_ROWS]]

    def layer_table(self) -> list[dict[str, str]]:
        """The layers that hold most at the peak, as text."""
        return [
            {"layer": row.layer or "outside of all layers", **self._shares(row)}
            for row in self.layers[:MAX_ROWS]
        ]

    def _shares(self, row: SiteMemory | LayerMemory) -> dict[str, str]:
        return {
            "category": row.category,
            "blocks": str(row.blocks),
            "held": readable_bytes(row.held_bytes),
            "share": readable_share(row.held_bytes / max(1, self.peak_bytes)),
        }

    @property
    def sections(self) -> list[Table | TableRecord]:
        layers = [Table((BY_LAYER,), self.layer_table(), _LAYER_WORDS)] if self.layers else []
        others = [other for other in (self.out_of_memory, self.replay) if other is not None]
        return [*layers, *others]
