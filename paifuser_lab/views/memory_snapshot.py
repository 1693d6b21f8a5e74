"""A snapshot of memory: by category over time, and the segments with their blocks."""

from __future__ import annotations

from typing import Any

from matplotlib.collections import PolyCollection

from ..records import MemorySnapshot, SnapshotMap, readable_bytes
from .style import Drawing, Plot, blank, visible, without_middle

COLOURS = {
    "weights": "#0072b2",
    "optimizer state": "#e69f00",
    "gradients": "#cc79a7",
    "activations": "#009e73",
    "inputs": "#56b4e9",
    "communication": "#d55e00",
    "other": "#8a8f94",
    "unknown": "#b9bdc1",
    "workspace": "#f0e442",
}
MAX_SEGMENTS = 40  # rows of the map; more would be thinner than a line of text
MAX_TOOLTIPS = 400


def draw(snapshot: MemorySnapshot, *, dark: bool = False) -> Drawing:
    """Allocated and reserved memory over time above, the segments at the peak below."""
    axes = blank(snapshot.title, height=6.2, dark=dark)
    grid = axes.drawing.add_gridspec(2, 1, height_ratios=(3, 3))
    axes.set_subplotspec(grid[0])
    below = axes.drawing.add_plot(grid[1])
    _draw_time(axes, snapshot)
    if snapshot.maps:
        _draw_map(below, snapshot.maps[0])
    else:
        below.set_axis_off()
    return axes.drawing


def _draw_time(axes: Plot, snapshot: MemorySnapshot) -> None:
    times = list(snapshot.time_ms)
    lower = [0.0] * len(times)
    for name, column in zip(snapshot.categories, snapshot.held_bytes, strict=True):
        upper = [under + held for under, held in zip(lower, column, strict=True)]
        axes.fill_between(
            times,
            lower,
            upper,
            step="post",
            color=COLOURS.get(name, COLOURS["other"]),
            alpha=0.8,
            linewidth=0,
            label=visible(name),
        )
        lower = upper
    if snapshot.device_type != "cpu":
        axes.plot(
            times,
            snapshot.reserved_bytes,
            drawstyle="steps-post",
            color=axes.theme.ink,
            linewidth=1.1,
            linestyle=(0, (4, 2)),
            label="reserved",
        )
    axes.set_ylim(0, 1.3 * max(snapshot.peak_reserved_bytes, snapshot.peak_bytes, 1))
    axes.in_bytes(axes.yaxis)
    axes.label(x="ms after the first event" if snapshot.is_timed else "events", y="allocated")
    _mark_events(axes, snapshot)
    axes.legend_beside()


def _mark_events(axes: Plot, snapshot: MemorySnapshot) -> None:
    """Mark the peak, and where memory ran out."""
    theme = axes.theme
    marks = [(snapshot.peak_ms, f"peak {readable_bytes(snapshot.peak_bytes)}", theme.ink)]
    if snapshot.out_of_memory is not None:
        asked = readable_bytes(snapshot.out_of_memory.requested_bytes)
        marks.append((snapshot.out_of_memory.time_ms, f"{asked} refused", theme.bad))
    last = snapshot.time_ms[-1] if snapshot.time_ms else 0.0
    for row, (time, text, colour) in enumerate(marks):
        axes.axvline(time, color=colour, linewidth=1, linestyle=(0, (2, 3)))
        is_late = time > last / 2
        axes.note(
            text,
            (time, 1.0 - 0.09 * row),
            (4, -2),
            xycoords=("data", "axes fraction"),
            to_left=is_late,
            va="top",
            color=colour,
            size=9,
        )


def _draw_map(axes: Plot, moment: SnapshotMap) -> None:
    """Draw a row per segment, the largest above, with blocks in the colours of their categories."""
    sizes = moment.segment_bytes
    shown = sorted(range(len(sizes)), key=lambda index: -sizes[index])[:MAX_SEGMENTS]
    row_of = {segment: row for row, segment in enumerate(shown)}
    widest = max((sizes[segment] for segment in shown), default=1)
    for segment, row in row_of.items():
        look: dict[str, Any] = {
            "facecolor": "none",
            "edgecolor": axes.theme.faint,
            "linewidth": 0.7,
        }
        text = _segment_text(moment, segment)
        axes.box((0, row - 0.4), (sizes[segment], 0.8), tooltip=text, **look)
    _draw_blocks(axes, moment, row_of)
    axes.set_xlim(0, 1.02 * widest)
    axes.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    axes.set_yticks([])
    axes.in_bytes(axes.xaxis)
    left = f", the {len(shown)} largest" if len(shown) < len(sizes) else ""
    axes.label(
        title=visible(f"segments {moment.moment}: {len(sizes)}{left}; what is empty is free")
    )


def _draw_blocks(axes: Plot, moment: SnapshotMap, row_of: dict[int, int]) -> None:
    """Draw the largest blocks with their call sites as tooltips, the others without."""
    inside = [index for index, segment in enumerate(moment.block_segment) if segment in row_of]
    inside.sort(key=lambda index: -moment.block_bytes[index])
    for index in inside[:MAX_TOOLTIPS]:
        left, size = moment.block_offset_bytes[index], moment.block_bytes[index]
        category = moment.categories[moment.block_category[index]]
        site = without_middle(visible(moment.sites[moment.block_site[index]]), 80)
        axes.box(
            (left, row_of[moment.block_segment[index]] - 0.4),
            (size, 0.8),
            tooltip=f"{site}\n{category}: {readable_bytes(size)}",
            facecolor=COLOURS.get(category, COLOURS["other"]),
            alpha=0.8,
            linewidth=0,
        )
    for category, colour in COLOURS.items():
        corners = [
            _corners(moment, index, row_of)
            for index in inside[MAX_TOOLTIPS:]
            if moment.categories[moment.block_category[index]] == category
        ]
        if corners:
            axes.add_collection(PolyCollection(corners, facecolors=colour, alpha=0.8, linewidths=0))


def _corners(moment: SnapshotMap, index: int, row_of: dict[int, int]) -> list[tuple[float, float]]:
    left, row = moment.block_offset_bytes[index], row_of[moment.block_segment[index]]
    right = left + moment.block_bytes[index]
    return [(left, row - 0.4), (right, row - 0.4), (right, row + 0.4), (left, row + 0.4)]


def _segment_text(moment: SnapshotMap, segment: int) -> str:
    size, used = moment.segment_bytes[segment], moment.segment_allocated_bytes[segment]
    kind = "expandable" if moment.segment_is_expandable[segment] else (
        "large" if moment.segment_is_large[segment] else "small"
    )  # fmt: skip
    return (
        f"{kind} segment of stream {moment.segment_stream[segment]}\n"
        f"{readable_bytes(size)}, {readable_bytes(size - used)} free"
    )
