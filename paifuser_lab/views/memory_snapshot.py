"""A snapshot of memory: by category over time, segments with their blocks, who held the peak."""

from __future__ import annotations

import math

from ..records import MemorySnapshot, SnapshotMap, readable_bytes
from ..records.table import Table
from ..records.text import three_figures
from .picture import (
    Area,
    Axis,
    Boxes,
    Cursor,
    Line,
    Mark,
    Panel,
    Picture,
    Rules,
    Side,
    Tips,
    Values,
)
from .style import CATEGORIES

MOST_MOMENTS = 1500  # more would be thinner than a line
MOST_SEGMENTS = 40  # rows of a map
MOST_BLOCKS = 2000  # the largest; smaller ones are thinner than a pixel


def picture(snapshot: MemorySnapshot) -> Picture:
    """Allocated and reserved memory over time above, the segments of each moment below."""
    at = _moments(snapshot)
    has_reserved = snapshot.device_type != "cpu"
    legend = [(_tone(name), name) for name in snapshot.categories]
    return Picture(
        title=snapshot.title,
        sentence=snapshot.sentence,
        label="moment of the snapshot",
        rows=((_time(snapshot, at),),) if at else (),
        legend=(*legend, ("ink", "reserved")) if has_reserved else tuple(legend),
        tables=_tables(snapshot),
        cursor=_cursor(snapshot, at) if at else None,
        below=tuple(map(_segments, snapshot.maps)),
    )


def _moments(snapshot: MemorySnapshot) -> list[int]:
    """The moments to draw: all, or if there are many the fullest of each interval."""
    whole = [sum(column) for column in zip(*snapshot.held_bytes, strict=True)]
    end = snapshot.time_ms[-1] if snapshot.time_ms else 0.0
    fullest: dict[int, int] = {}
    for index, time in enumerate(snapshot.time_ms):
        interval = int(time / (end or 1.0) * MOST_MOMENTS)
        if interval not in fullest or whole[index] > whole[fullest[interval]]:
            fullest[interval] = index
    return list(fullest.values())


def _time(snapshot: MemorySnapshot, at: list[int]) -> Panel:
    times = [snapshot.time_ms[index] for index in at]
    lower = [0.0] * len(at)
    marks: list[Mark] = []
    for name, column in zip(snapshot.categories, snapshot.held_bytes, strict=True):
        upper = [under + column[index] for under, index in zip(lower, at, strict=True)]
        if upper != lower:
            marks.append(Area(times, lower, upper, tone=_tone(name)))
        lower = upper
    if snapshot.device_type != "cpu":
        reserved = [snapshot.reserved_bytes[index] for index in at]
        marks.append(Line(times, reserved, True, 1.1, tone="ink", style="dashed"))
    end = times[-1] or 1.0
    marks += _events(snapshot, end)
    most = 1.3 * max(snapshot.peak_reserved_bytes, snapshot.peak_bytes, 1)
    label = "ms after the first event" if snapshot.is_timed else "events"
    return Panel(
        Axis.linear(0, end, label), Axis.linear(0, most, "allocated", "bytes"), tuple(marks), 260
    )


def _events(snapshot: MemorySnapshot, end: float) -> list[Mark]:
    """The peak, and where memory ran out."""
    peak = f"peak {readable_bytes(snapshot.peak_bytes)}"
    events = [(snapshot.peak_ms, peak, "ink")]
    if snapshot.out_of_memory is not None:
        asked = readable_bytes(snapshot.out_of_memory.requested_bytes)
        events.append((snapshot.out_of_memory.time_ms, f"{asked} refused", "bad"))
    marks: list[Mark] = []
    for index, (time, text, tone) in enumerate(events):
        side: Side = "right" if time > end / 2 else "left"
        marks.append(Rules("x", [time], [text], side, bool(index), tone=tone, style="dotted"))
    return marks


def _cursor(snapshot: MemorySnapshot, at: list[int]) -> Cursor:
    """What is held at each moment; the peak until another is pointed at."""
    times = [snapshot.time_ms[index] for index in at]
    whole = [sum(column[index] for column in snapshot.held_bytes) for index in at]
    headings = [
        f"{readable_bytes(held)} allocated at {three_figures(time)} {snapshot.unit}"
        for held, time in zip(whole, times, strict=True)
    ]
    reserved = (
        [f"{readable_bytes(snapshot.reserved_bytes[index])} reserved" for index in at]
        if snapshot.device_type != "cpu"
        else ()
    )
    figures = tuple(
        Values(name, [column[index] or math.nan for index in at], "bytes")
        for name, column in zip(snapshot.categories, snapshot.held_bytes, strict=True)
        if any(column)
    )
    before_peak = [place for place, time in enumerate(times) if time <= snapshot.peak_ms]
    return Cursor(times, Tips(headings, reserved, figures), max(before_peak, default=0))


def _segments(moment: SnapshotMap) -> Picture:
    """A row a segment, the largest above, with blocks in the colours of their categories."""
    sizes = moment.segment_bytes
    shown = sorted(range(len(sizes)), key=lambda index: -sizes[index])[:MOST_SEGMENTS]
    row_of = {segment: row for row, segment in enumerate(shown)}
    widest = 1.02 * max((sizes[segment] for segment in shown), default=1)
    left = f" The {len(shown)} largest are drawn." if len(shown) < len(sizes) else ""
    names = [
        f"{readable_bytes(sizes[segment])}, "
        f"{readable_bytes(sizes[segment] - moment.segment_allocated_bytes[segment])} free"
        for segment in shown
    ]
    ends = [sizes[segment] for segment in shown]
    outlines = Boxes.in_rows([0] * len(ends), ends, half=0.4, tone="faint", is_hollow=True)
    panel = Panel(
        Axis.linear(0, widest, "from the start of a segment", "bytes"),
        Axis.band(names),
        (outlines, _blocks(moment, row_of)),
        height=50 + 15 * len(shown),
    )
    return Picture(
        title=f"Segments {moment.sentence}{left} What is empty is free.",
        label=f"blocks in segments {moment.moment}",
        rows=((panel,),),
    )


def _blocks(moment: SnapshotMap, row_of: dict[int, int]) -> Boxes:
    """The largest blocks, in the order of the rows, with their call sites."""
    inside = [index for index, segment in enumerate(moment.block_segment) if segment in row_of]
    inside = sorted(inside, key=lambda index: -moment.block_bytes[index])[:MOST_BLOCKS]
    places = {
        index: (row_of[moment.block_segment[index]], moment.block_offset_bytes[index])
        for index in inside
    }
    inside.sort(key=lambda index: places[index])
    sizes = [moment.block_bytes[index] for index in inside]
    offsets = [places[index][1] for index in inside]
    rows = [places[index][0] for index in inside]
    ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
    categories = [moment.categories[moment.block_category[index]] for index in inside]
    figures = (
        Values("allocated here", sizes, "bytes"),
        Values("from the start of its segment", offsets, "bytes"),
        Values("", [_segment(moment, moment.block_segment[index]) for index in inside]),
    )
    sites = [moment.sites[moment.block_site[index]] for index in inside]
    tones = [_tone(name) for name in categories]
    tips = Tips(sites, categories, figures)
    return Boxes.in_rows(offsets, ends, rows, half=0.4, tone=tones, tips=tips)


def _segment(moment: SnapshotMap, segment: int) -> str:
    if moment.segment_is_expandable[segment]:
        kind = "an expandable"
    else:
        kind = "a large" if moment.segment_is_large[segment] else "a small"
    return f"in {kind} segment of stream {moment.segment_stream[segment]}"


def _tables(snapshot: MemorySnapshot) -> tuple[Table, ...]:
    layers = snapshot.layer_table()
    tables = [
        Table(("layers that hold most at the peak",), layers, ("layer", "category")),
        snapshot.as_table("call sites that hold most at the peak"),
    ]
    for other in (snapshot.out_of_memory, snapshot.replay):
        tables += [other.as_table(other.sentence)] if other is not None else []
    return tuple(table for table in tables if table.rows)


def _tone(category: str) -> str:
    return CATEGORIES.get(category, CATEGORIES["other"])
