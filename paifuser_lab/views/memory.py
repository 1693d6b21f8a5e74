"""A call's memory over time by groups of layers."""

from __future__ import annotations

from collections import defaultdict

import numpy

from ..records import Held, MemoryTimeline, readable_bytes
from .style import GROUPS, Drawing, Plot, blank, visible, without_middle

HATCHES = {"weights": "", "activations": "////", "workspace": "...."}
MAX_ROWS = 10
MAX_TIMES = 2000  # more would be thinner than a line


def draw(timeline: MemoryTimeline, *, dark: bool = False) -> Drawing:
    """Allocated memory over time above, the peak by layer below."""
    axes = blank(timeline.title, height=5.2, dark=dark)
    grid = axes.drawing.add_gridspec(2, 1, height_ratios=(3, 2.4))
    axes.set_subplotspec(grid[0])
    _draw_time(axes, timeline)
    _draw_peak(axes.drawing.add_plot(grid[1]), timeline)
    return axes.drawing


def _draw_time(axes: Plot, timeline: MemoryTimeline) -> None:
    names, _ = timeline.groups
    events = _events_to_draw(timeline)
    times = [*(timeline.time_ms[event] for event in events), timeline.duration_ms]
    stacked = numpy.cumsum(_alive_by_group(timeline, events), axis=0)
    lower = numpy.zeros(len(events))
    for group, (name, upper) in enumerate(zip(names, stacked, strict=True)):
        if (upper > lower).any():
            axes.fill_between(
                times,
                [*lower, *lower[-1:]],
                [*upper, *upper[-1:]],
                step="post",
                color=GROUPS[group],
                alpha=0.78,
                linewidth=0,
                label=_group_name(name),
            )
        lower = upper
    axes.set_xlim(0, timeline.duration_ms or 1.0)
    axes.set_ylim(0, 1.18 * max(timeline.peak_bytes, 1))
    axes.in_bytes(axes.yaxis)
    axes.label(x="ms into the call", y="alive beyond the weights")
    if events:
        _mark_peak(axes, timeline)
        axes.legend_beside()


def _mark_peak(axes: Plot, timeline: MemoryTimeline) -> None:
    place = timeline.peak_ms, timeline.peak_bytes
    axes.vlines(place[0], 0, place[1], color=axes.theme.ink, linewidth=1, linestyle=(0, (2, 3)))
    axes.mark(place, axes.theme.ink, markersize=5)
    is_late = timeline.peak_ms > timeline.duration_ms / 2
    axes.note(
        f"peak {readable_bytes(timeline.peak_bytes)} at {timeline.peak_ms:.3g} ms",
        place,
        (6, 4),
        to_left=is_late,
        size=9,
        weight="bold",
    )


def _draw_peak(axes: Plot, timeline: MemoryTimeline) -> None:
    """A bar for each of the largest allocations in its group's colour; the hatch is the kind."""
    rows, rest = timeline.at_peak[:MAX_ROWS], timeline.at_peak[MAX_ROWS:]
    group_of = dict(zip(timeline.layers, timeline.groups[1], strict=True))
    for index, row in enumerate(rows):
        (bar,) = axes.barh(
            index,
            row.held_bytes,
            height=0.72,
            color=GROUPS[group_of[row.layer]],
            alpha=0.78,
            linewidth=0,
            edgecolor=axes.theme.paper,
            hatch=HATCHES[row.kind],
        )
        axes.tooltip(bar, f"{_name(row, timeline)}\n{row.kind}: {readable_bytes(row.held_bytes)}")
        axes.note(
            readable_bytes(row.held_bytes), (row.held_bytes, index), (4, 0), va="center", size=8
        )
    labels = [f"{without_middle(visible(_name(row, timeline)), 30)}, {row.kind}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max((row.held_bytes for row in rows), default=1))
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    others = readable_bytes(sum(row.held_bytes for row in rest))
    left = f", and {len(rest)} more of {others}" if rest else ""
    axes.label(title=f"alive at the peak{left}")


def _name(row: Held, timeline: MemoryTimeline) -> str:
    return row.layer or timeline.workload


def _events_to_draw(timeline: MemoryTimeline) -> list[int]:
    """The events to draw: all, or if there are many the peak in each interval of time."""
    highest: dict[int, int] = {}
    for event, time in enumerate(timeline.time_ms):
        interval = int(time / (timeline.duration_ms or 1.0) * MAX_TIMES)
        if timeline.alive_bytes[event] > timeline.alive_bytes[highest.setdefault(interval, event)]:
            highest[interval] = event
    return list(highest.values())


def _alive_by_group(timeline: MemoryTimeline, events: list[int]) -> numpy.ndarray:
    """The allocated bytes with a row per group and a column per event."""
    names, group_of = timeline.groups
    selected, held, columns = set(events), [0] * len(names), defaultdict(list)
    for event, (index, change) in enumerate(
        zip(timeline.layer_index, timeline.change_bytes, strict=True)
    ):
        held[group_of[index]] += change
        if event in selected:
            for group, count in enumerate(held):
                columns[group].append(count)
    return numpy.asarray([columns[group] for group in range(len(names))], dtype=float).reshape(
        len(names), len(events)
    )


def _group_name(name: str) -> str:
    return without_middle(visible(name or "the model itself"), 24)
