"""A call's memory over time, stacked by layers or by category, and what is alive at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from ..records import Held, MemoryTimeline, readable_bytes
from ..records.text import three_figures
from .picture import (
    LETTERS,
    Area,
    Axis,
    Boxes,
    Cursor,
    Dots,
    Labels,
    Line,
    Mark,
    Panel,
    Picture,
    Tips,
    Values,
    text_width,
)
from .style import CATEGORIES, without_middle

Mode = Literal["layer", "category"]
KINDS = ("weights", "activations", "workspace")
MOST_EVENTS = 500  # of a curve: more would be thinner than a line
MOST_NAMED = 3  # of what is alive at a moment
WIDE, HIGH = 520, 250  # of the map, in pixels of a narrow page
HEADING, LOWEST = 18, 22  # pixels of a part of the map


class Stack(NamedTuple):
    """What the bytes are stacked by; `base` is alive all the time."""

    names: Sequence[str]
    tones: Sequence[str]
    base: Sequence[int]
    part_of: Callable[[int], int]  # of an event


def picture(timeline: MemoryTimeline, row: int | None = None, mode: Mode = "layer") -> Picture:
    """The curve; below it the map of the moment in that row of the cursor, by default the peak."""
    events = drawn_events(timeline)
    stack = _stack(timeline, mode)
    event = events[row] if row is not None and 0 <= row < len(events) else timeline.peak_event
    return Picture(
        title=timeline.title,
        label="moment of the call",
        sentence=timeline.sentence,
        note=timeline.note,
        rows=((_time(timeline, events, stack),),) if events else (),
        legend=tuple(
            (tone, name or "the model itself")
            for name, tone in zip(stack.names, stack.tones, strict=True)
        ),
        cursor=_cursor(timeline, events, sum(stack.base)) if events else None,
        below=(_map(timeline, event, mode),),
    )


def drawn_events(timeline: MemoryTimeline) -> list[int]:
    """The events to draw: all, or if there are many the one with most bytes of each interval."""
    alive, highest = timeline.alive_bytes, dict[int, int]()
    for event, time in enumerate(timeline.time_ms):
        interval = int(time / (timeline.duration_ms or 1.0) * MOST_EVENTS)
        if alive[event] > alive[highest.setdefault(interval, event)]:
            highest[interval] = event
    return list(highest.values())


def _stack(timeline: MemoryTimeline, mode: Mode) -> Stack:
    if mode == "category":
        base = (timeline.total_weights_bytes, 0, 0)
        tones = [CATEGORIES[kind] for kind in KINDS]
        return Stack(KINDS, tones, base, lambda event: 1 + timeline.is_workspace[event])
    names, group_of = timeline.groups
    tones = [f"group-{group}" for group in range(len(names))]
    return Stack(
        names, tones, [0] * len(names), lambda event: group_of[timeline.layer_index[event]]
    )


def _time(timeline: MemoryTimeline, events: list[int], stack: Stack) -> Panel:
    times = [*(timeline.time_ms[event] for event in events), timeline.duration_ms]
    alive = _by_part(timeline, events, stack)
    lower, marks = [0] * len(events), list[Mark]()
    for part, tone in enumerate(stack.tones):
        upper = [under + column[part] for under, column in zip(lower, alive, strict=True)]
        if upper != lower:
            marks.append(Area(times, [*lower, lower[-1]], [*upper, upper[-1]], tone=tone))
        lower = upper
    marks.append(Line(times, [*lower, lower[-1]], is_stepped=True, width=1.0, tone="ink"))
    base = sum(stack.base)
    peak_ms, peak = timeline.peak_ms, timeline.peak_bytes + base
    text = f"peak {readable_bytes(timeline.peak_bytes)} at {three_figures(peak_ms)} ms"
    is_late = peak_ms > timeline.duration_ms / 2
    marks += [
        Dots([peak_ms], [peak], size=5.0, tone="ink"),
        Labels([peak_ms], [peak], [text], "left" if is_late else "right", 9, True, tone="ink"),
    ]
    label = "alive, with the weights" if base else "alive beyond the weights"
    across = Axis.linear(0, timeline.duration_ms or 1.0, "ms into the call")
    return Panel(across, Axis.linear(0, 1.25 * max(peak, 1), label, "bytes"), tuple(marks), 270)


def _by_part(timeline: MemoryTimeline, events: list[int], stack: Stack) -> list[list[int]]:
    """The bytes of each part after each of the events."""
    held, columns, drawn = [*stack.base], list[list[int]](), set(events)
    for event, change in enumerate(timeline.change_bytes):
        held[stack.part_of(event)] += change
        if event in drawn:
            columns.append([*held])
    return columns


def _cursor(timeline: MemoryTimeline, events: list[int], base: int) -> Cursor:
    """What happened at each moment, and what is alive then beyond the weights."""
    held: dict[tuple[int, bool], int] = defaultdict(int)
    drawn, largest = set(events), list[str]()
    for event, change in enumerate(timeline.change_bytes):
        held[timeline.layer_index[event], timeline.is_workspace[event]] += change
        if event in drawn:
            most = sorted(held.items(), key=lambda row: -row[1])[:MOST_NAMED]
            largest.append(", ".join(_held_text(timeline, *row) for row in most if row[1] > 0))
    headings, lines = [], []
    for event in events:
        whole = readable_bytes(timeline.alive_bytes[event] + base)
        headings.append(f"{whole} after {three_figures(timeline.time_ms[event])} ms")
        change = timeline.change_bytes[event]
        layer = timeline.layers[timeline.layer_index[event]] or "the model itself"
        verb = "gives back" if change < 0 else "takes"
        lines.append(f"{layer} {verb} {readable_bytes(abs(change))}")
    tips = Tips(headings, lines, (Values("", largest),))
    times = [timeline.time_ms[event] for event in events]
    return Cursor(times, tips, events.index(timeline.peak_event))


def _held_text(timeline: MemoryTimeline, key: tuple[int, bool], count: int) -> str:
    index, is_workspace = key
    kind = "workspace" if is_workspace else "activations"
    return f"{readable_bytes(count)} {timeline.layers[index] or 'the model itself'} {kind}"


def _map(timeline: MemoryTimeline, event: int, mode: Mode) -> Picture:
    """A treemap of what is alive after an event: a part a kind, and in it a box a layer."""
    is_peak = event == timeline.peak_event
    when = "at the peak" if is_peak else f"after {three_figures(timeline.time_ms[event])} ms"
    held = [row for row in timeline.held_at(event) if row.held_bytes > 0]
    parts = [(kind, rows) for kind in KINDS if (rows := [row for row in held if row.kind == kind])]
    sizes = [sum(row.held_bytes for row in rows) for _, rows in parts]
    heights = shares(sizes, HIGH - HEADING * len(parts), LOWEST)
    top, placed, heads = float(HIGH), list[tuple[Held, Place]](), list[tuple[float, str]]()
    for (kind, rows), size, height in zip(parts, sizes, heights, strict=True):
        heads.append((top - HEADING / 2, f"{kind} {readable_bytes(size)}"))
        room = Place(0, top - HEADING - height, WIDE, height)
        boxes = squarified([row.held_bytes for row in rows], room)
        placed += zip(rows, boxes, strict=True)
        top -= HEADING + height
    panel = Panel(
        Axis(0, WIDE), Axis(0, HIGH), _map_marks(timeline, placed, heads, mode), HIGH + 20
    )
    title = f"alive {when}"
    return Picture(title, f"what is {title}", ((panel,),) if placed else ())


def _map_marks(
    timeline: MemoryTimeline,
    placed: list[tuple[Held, Place]],
    heads: list[tuple[float, str]],
    mode: Mode,
) -> tuple[Mark, ...]:
    group_of = dict(zip(timeline.layers, timeline.groups[1], strict=True))
    whole = sum(row.held_bytes for row, _ in placed)
    tones = [
        CATEGORIES[row.kind] if mode == "category" else f"group-{group_of[row.layer]}"
        for row, _ in placed
    ]
    names = [row.layer or timeline.workload for row, _ in placed]
    figures = (
        Values("held", [row.held_bytes for row, _ in placed], "bytes"),
        Values("of all that is alive", [f"{row.held_bytes / whole:.1%}" for row, _ in placed]),
    )
    boxes = Boxes(
        [box.x + 0.5 for _, box in placed],
        [box.x + box.width - 0.5 for _, box in placed],
        [box.y + 0.5 for _, box in placed],
        [box.y + box.height - 0.5 for _, box in placed],
        tone=tones,
        key=[row.layer for row, _ in placed],
        tips=Tips(names, [row.kind for row, _ in placed], figures),
    )
    texts = [(box, _fitted(name, box)) for name, (_, box) in zip(names, placed, strict=True)]
    named = [(box, text) for box, text in texts if text]
    labels = Labels(
        [box.x for box, _ in named],
        [box.y + box.height - 9 for box, _ in named],
        [text for _, text in named],
        tone="ink",
    )
    parts = Labels(
        [0.0] * len(heads), [y for y, _ in heads], [text for _, text in heads], tone="soft"
    )
    return boxes, labels, parts


def _fitted(name: str, box: Place) -> str:
    """The name, or in little room its end, which distinguishes layers; '' where none fits."""
    letters = int((box.width - 14) / (0.6 * LETTERS))
    if letters < 5 or box.height < LETTERS + 6:
        return ""
    if text_width(name) <= box.width - 14:
        return name
    return f"…{name[1 - letters :]}" if letters < 18 else without_middle(name, letters)


# A treemap: boxes whose surfaces are as sizes, as near to squares as rows of them can be.


class Place(NamedTuple):
    """A box by its lower left corner and its size."""

    x: float
    y: float
    width: float
    height: float


def squarified(sizes: Sequence[float], room: Place) -> list[Place]:
    """A box for each of the sizes, which come largest first."""
    whole = sum(sizes)
    if not whole > 0:
        return []
    areas = [size * room.width * room.height / whole for size in sizes]
    places: list[Place] = []
    while len(places) < len(areas):
        rest = areas[len(places) :]
        short, count = min(room.width, room.height), 1
        while count < len(rest) and _worst(rest[: count + 1], short) <= _worst(rest[:count], short):
            count += 1
        row, room = _laid(rest[:count], room)
        places += row
    return places


def shares(sizes: Sequence[float], room: float, least: float) -> list[float]:
    """The room in the ratio of the sizes, but none of them below the least."""
    whole = sum(sizes) or 1.0
    parts = [max(least, room * size / whole) for size in sizes]
    over, slack = sum(parts) - room, sum(part - least for part in parts) or 1.0
    return [part - over * (part - least) / slack for part in parts]


def _worst(areas: Sequence[float], side: float) -> float:
    """How far the worst box of a row along a side is from a square."""
    whole = sum(areas)
    return max(side**2 * areas[0] / whole**2, whole**2 / (side**2 * areas[-1]))


def _laid(areas: Sequence[float], room: Place) -> tuple[list[Place], Place]:
    """A row along the shorter side, and the room that is left."""
    x, y, width, height = room
    deep = sum(areas) / min(width, height)
    lengths = [area / deep for area in areas]
    row = list(zip(accumulate(lengths, initial=0.0), lengths, strict=False))
    if width >= height:
        left = Place(x + deep, y, max(0.0, width - deep), height)
        return [Place(x, y + along, deep, long) for along, long in row], left
    left = Place(x, y + deep, width, max(0.0, height - deep))
    return [Place(x + along, y, long, deep) for along, long in row], left
