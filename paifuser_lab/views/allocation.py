"""The Pareto frontier of an allocation: latency or size against predicted loss, with uniform
formats and measured points.
"""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator, SymmetricalLogLocator

from ..records import Allocation, AllocationPoint, readable_bytes
from .style import Drawing, Plot, blank, visible

LINEAR_BELOW = 1e-4  # of the greatest loss: below it the scale is linear, through zero


def draw(allocation: Allocation, *, dark: bool = False) -> Drawing:
    """The frontier as a line, diamonds for uniform formats, hollow marks for measured points."""
    axes = blank(allocation.title, height=4.2, dark=dark)
    _scale(axes, allocation)
    xs, ys = zip(*(place_of(allocation, point) for point in allocation.points), strict=True)
    look: dict[str, Any] = {"linewidth": 1.4, "drawstyle": "steps-post", "zorder": 2}
    axes.plot(xs, ys, color=axes.theme.main, **look)
    for point in allocation.everything:
        _draw_point(axes, allocation, point)
    _ring(axes, allocation)
    _legend(axes, allocation)
    return axes.drawing


def place_of(allocation: Allocation, point: AllocationPoint) -> tuple[float, float]:
    """The predicted position of a point."""
    return (point.latency_ms if allocation.axis == "latency_ms" else point.size_bytes), point.loss


def achieved_place(allocation: Allocation, point: AllocationPoint) -> tuple[float, float] | None:
    """The measured position of a point; its latency is scaled by that of the baseline measured with
    it, so that a machine that was slower then does not show.
    """
    achieved = point.achieved
    if achieved is None or achieved.loss is None:
        return None
    return (
        allocation.baseline_ms * achieved.latency_ms / achieved.baseline_ms
        if allocation.axis == "latency_ms"
        else achieved.size_bytes
    ), achieved.loss


def _draw_point(axes: Plot, allocation: Allocation, point: AllocationPoint) -> None:
    theme = axes.theme
    x, y = place_of(allocation, point)
    is_uniform = point in allocation.uniform
    colour, marker = (theme.soft, "D") if is_uniform else (theme.main, "o")
    axes.mark((x, y), colour, tooltip=_tooltip(point), marker=marker, markersize=5, zorder=3)
    if is_uniform:
        is_right = x > sum(axes.get_xlim()) / 2  # so that the name stays within the drawing
        axes.note(
            visible(point.name),
            (x, y),
            (6, 5),
            to_left=is_right,
            size=8,
        )
    if (measured := achieved_place(allocation, point)) is not None:
        axes.plot([x, measured[0]], [y, measured[1]], color=theme.faint, linewidth=0.7, zorder=1)
        axes.mark(measured, theme.bad, is_hollow=True, marker=marker, zorder=3)


def _tooltip(point: AllocationPoint) -> str:
    measured = ""
    if (achieved := point.achieved) is not None:
        loss = "" if achieved.loss is None else f", loss {achieved.loss:.2g}"
        measured = f"; achieved {achieved.latency_ms:.3g} ms{loss}"
    size = readable_bytes(point.size_bytes)
    return (
        f"{point.name}: {point.words} · {point.latency_ms:.3g} ms, {size}, loss {point.loss:.2g} ± "
        f"{point.loss_error:.1g}{measured}"
    )


def _ring(axes: Plot, allocation: Allocation) -> None:
    """Mark the chosen point and the limits."""
    place = place_of(allocation, allocation.best)
    axes.ring(place, 12)
    axes.note("chosen", place, (-4, 11), color=axes.theme.good, size=9)
    low, high = axes.get_xlim()
    if (limit := allocation.limits.get(allocation.axis)) is not None and low <= limit <= high:
        axes.dashed(x=limit)
    if (limit := allocation.limits.get("loss")) is not None:
        axes.dashed(y=limit)


def _legend(axes: Plot, allocation: Allocation) -> None:
    theme = axes.theme
    words = [
        ("o", theme.main, theme.main, "frontier, predicted"),
        ("D", theme.soft, theme.soft, "one format for all"),
    ]
    if any(achieved_place(allocation, point) is not None for point in allocation.everything):
        words.append(("o", theme.bad, "none", "achieved"))
    marks = [
        axes.plot(
            [], [], marker=shape, color=colour, markerfacecolor=face, linestyle="none", label=text
        )[0]
        for shape, colour, face, text in words
    ]
    axes.drawing.legend(
        handles=marks,
        loc="outside lower right",
        ncols=3,
        fontsize=8,
        frameon=False,
        labelcolor=theme.ink,
    )


def _scale(axes: Plot, allocation: Allocation) -> None:
    """Losses by powers of ten, linear around zero, since a measured loss may be below it."""
    positions = [place_of(allocation, point) for point in allocation.everything]
    positions += [
        position
        for point in allocation.everything
        if (position := achieved_place(allocation, point)) is not None
    ]
    xs, ys = [x for x, _ in positions], [y for _, y in positions]
    sizes = [abs(y) for y in ys if y]
    linear = max(min(sizes, default=1.0), LINEAR_BELOW * max(sizes, default=1.0))
    axes.set_yscale("symlog", linthresh=linear)
    axes.set_ylim(min(0.0, 1.6 * min(ys)) - 0.2 * linear, max(linear, 2.5 * max(ys)))
    margin = 0.06 * (max(xs) - min(xs)) or 0.1 * max(xs)
    axes.set_xlim(min(xs) - margin, max(xs) + 2 * margin)
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1g}"))
    axes.xaxis.set_major_locator(MaxNLocator(7))
    if allocation.axis == "size_bytes":
        axes.in_bytes(axes.xaxis)
    axes.label(
        x="predicted latency, ms" if allocation.axis == "latency_ms" else "size",
        y="rise of the loss" if allocation.unit == "loss" else "error of the output",
    )
    axes.show_grid()
