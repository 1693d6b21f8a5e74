"""The buffers of a call in one arena: operators from left to right, addresses upwards; what is
alive at once, the lower bound, and what torch's allocator held.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import MemoryPlan, PackedBuffer, readable_bytes
from .memory import GROUPS
from .sheet import visible, without_middle, wrapped
from .style import Drawing, Theme, blank, legend_beside

MOST_TOOLTIPS = 600  # the largest buffers have one


def draw(plan: MemoryPlan, *, dark: bool = False) -> Drawing:
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
            drawing.add_tooltip(box, _tooltip(buffer, plan))
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


def _tooltip(buffer: PackedBuffer, plan: MemoryPlan) -> str:
    return (
        f"{buffer.layer or plan.workload}\n{buffer.operator}: {readable_bytes(buffer.size_bytes)} "
        f"at {readable_bytes(buffer.offset_bytes)}, operators {buffer.begin + 1} to "
        f"{buffer.end + 1}"
    )
