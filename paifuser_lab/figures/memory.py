"""A call's memory over time by groups of layers, and its buffers in one arena."""

from __future__ import annotations

from collections import defaultdict

import numpy
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import Held, MemoryPlan, MemoryTimeline, PackedBuffer, readable_bytes
from .sheet import visible, without_middle, wrapped
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


MOST_TOOLTIPS = 600  # the largest buffers have one


def draw_plan(plan: MemoryPlan, *, dark: bool = False) -> Drawing:
    """A box for each buffer, as wide as it lives and as high as it is large."""
    drawing, axes, theme = blank("\n".join(wrapped(plan.title, 78)), height=4.4, dark=dark)
    _draw_buffers(drawing, axes, plan, theme)
    _draw_levels(axes, plan, theme)
    axes.set_xlim(0, max(plan.operators, 1))
    axes.set_ylim(0, 1.12 * max(plan.held_bytes, plan.packed_bytes, 1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(int(value))))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("operators of the call, in order", color=theme.ink, fontsize=9)
    axes.set_ylabel("address in the arena", color=theme.ink, fontsize=9)
    return drawing


def _draw_buffers(drawing: Drawing, axes: Axes, plan: MemoryPlan, theme: Theme) -> None:
    names, group_of = plan.groups
    order = sorted(range(len(plan.buffers)), key=lambda index: -plan.buffers[index].size_bytes)
    named: set[int] = set()
    for rank, index in enumerate(order):
        buffer, group = plan.buffers[index], group_of[index]
        is_first = group not in named
        named.add(group)
        box = Rectangle(
            (buffer.begin, buffer.offset_bytes),
            buffer.end + 1 - buffer.begin,
            buffer.size_bytes,
            facecolor=GROUPS[group],
            edgecolor=theme.paper,
            linewidth=0.4,
            alpha=0.78,
            label=without_middle(visible(names[group] or "the model itself"), 24)
            if is_first
            else None,
        )
        axes.add_patch(box)
        if rank < MOST_TOOLTIPS:
            drawing.add_tooltip(box, _buffer_tooltip(buffer, plan))
    if order:
        _draw_legend(axes, names, theme)


def _draw_legend(axes: Axes, names: tuple[str, ...], theme: Theme) -> None:
    """A legend in the order of the groups."""
    handles, labels = axes.get_legend_handles_labels()
    texts = [without_middle(visible(name or "the model itself"), 24) for name in names]
    ranked = sorted(zip(handles, labels, strict=True), key=lambda pair: texts.index(pair[1]))
    legend_beside(axes, theme, [handle for handle, _ in ranked], [label for _, label in ranked])


def _draw_levels(axes: Axes, plan: MemoryPlan, theme: Theme) -> None:
    """What is alive at each operator as a line, and the three sizes as levels."""
    if not plan.buffers:
        return
    axes.stairs(
        plan.alive_bytes, range(plan.operators + 1), color=theme.ink, linewidth=1.2, baseline=None
    )
    levels = {
        "held by torch": (plan.held_bytes, (0, (1, 1.5))),
        "arena": (plan.packed_bytes, "solid"),
        "least": (plan.bound_bytes, (0, (4, 3))),
    }
    for size, style in levels.values():
        axes.axhline(size, color=theme.ink, linewidth=0.9, linestyle=style)
    texts: dict[int, list[str]] = {}
    for name, (size, _) in levels.items():
        texts.setdefault(size, []).append(name)
    for size, names in texts.items():
        is_below = size == plan.bound_bytes != plan.packed_bytes
        axes.annotate(
            f"{' = '.join(names)} {readable_bytes(size)}",
            (plan.operators, size),
            (-4, -3 if is_below else 3),
            textcoords="offset points",
            ha="right",
            va="top" if is_below else "bottom",
            color=theme.ink,
            fontsize=8,
            fontweight="bold",
        )


def _buffer_tooltip(buffer: PackedBuffer, plan: MemoryPlan) -> str:
    return (
        f"{buffer.layer or plan.workload}\n{buffer.operator}: {readable_bytes(buffer.size_bytes)} "
        f"at {readable_bytes(buffer.offset_bytes)}, operators {buffer.begin + 1} to "
        f"{buffer.end + 1}"
    )
