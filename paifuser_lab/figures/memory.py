"""A call's memory over time, stacked by groups of layers, with the largest allocations at the peak
below.
"""

from __future__ import annotations

from collections import defaultdict

import numpy
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import Held, MemoryTimeline, readable_bytes
from .sheet import visible, without_middle
from .style import Drawing, Theme, blank, legend_beside

GROUPS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8f94")
HATCHES = {"weights": "", "activations": "////", "workspace": "...."}
MAX_ROWS = 10
MAX_TIMES = 2000  # more would be thinner than a line


def draw(timeline: MemoryTimeline, *, dark: bool = False) -> Drawing:
    """Allocated memory over time above, the peak by layer below."""
    drawing, top, theme = blank(timeline.title, height=5.2, dark=dark)
    grid = GridSpec(2, 1, figure=drawing, height_ratios=(3, 2.4))
    top.set_subplotspec(grid[0])
    below = drawing.add_subplot(grid[1], facecolor=theme.paper)
    _draw_time(top, timeline, theme)
    _draw_peak(drawing, below, timeline, theme)
    return drawing


def _draw_time(axes: Axes, timeline: MemoryTimeline, theme: Theme) -> None:
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
                label=without_middle(visible(name or "the model itself"), 24),
            )
        lower = upper
    axes.set_xlim(0, timeline.duration_ms or 1.0)
    axes.set_ylim(0, 1.18 * max(timeline.peak_bytes, 1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(int(value))))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("ms into the call", color=theme.ink, fontsize=9)
    axes.set_ylabel("alive beyond the weights", color=theme.ink, fontsize=9)
    if events:
        _mark_peak(axes, timeline, theme)
        legend_beside(axes, theme)


def _mark_peak(axes: Axes, timeline: MemoryTimeline, theme: Theme) -> None:
    axes.plot(
        [timeline.peak_ms] * 2,
        [0, timeline.peak_bytes],
        color=theme.ink,
        linewidth=1,
        linestyle=(0, (2, 3)),
    )
    axes.plot([timeline.peak_ms], [timeline.peak_bytes], marker="o", markersize=5, color=theme.ink)
    is_late = timeline.peak_ms > timeline.duration_ms / 2
    axes.annotate(
        f"peak {readable_bytes(timeline.peak_bytes)} at {timeline.peak_ms:.3g} ms",
        (timeline.peak_ms, timeline.peak_bytes),
        (-6 if is_late else 6, 4),
        textcoords="offset points",
        ha="right" if is_late else "left",
        color=theme.ink,
        fontsize=9,
        fontweight="bold",
    )


def _draw_peak(drawing: Drawing, axes: Axes, timeline: MemoryTimeline, theme: Theme) -> None:
    """Draw a bar for each of the largest allocations in its group's colour; the hatch shows the
    kind.
    """
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
            edgecolor=theme.paper,
            hatch=HATCHES[row.kind],
        )
        drawing.add_tooltip(
            bar, f"{_name(row, timeline)}\n{row.kind}: {readable_bytes(row.held_bytes)}"
        )
        axes.annotate(
            readable_bytes(row.held_bytes),
            (row.held_bytes, index),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=theme.ink,
            fontsize=8,
        )
    labels = [f"{without_middle(visible(_name(row, timeline)), 30)}, {row.kind}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max((row.held_bytes for row in rows), default=1))
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(colors=theme.ink, length=0)
    left = (
        f", and {len(rest)} more of {readable_bytes(sum(row.held_bytes for row in rest))}"
        if rest
        else ""
    )
    axes.set_title(f"alive at the peak{left}", loc="left", color=theme.ink, fontsize=9)


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
