"""The Pareto frontier of an allocation: latency or size against predicted loss, with uniform
formats and measured points.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, SymmetricalLogLocator

from ..records import Allocation, AllocationPoint, readable_bytes
from .sheet import visible
from .style import Drawing, Theme, blank

LINEAR_BELOW = 1e-4  # of the greatest loss: below it the scale is linear, through zero


def draw(allocation: Allocation, *, dark: bool = False) -> Drawing:
    """A line through the frontier, diamonds for uniform formats, and hollow marks for measured
    points.
    """
    drawing, axes, theme = blank(visible(allocation.title), height=4.2, dark=dark)
    _scale(axes, allocation, theme)
    axes.plot(*_line(allocation), color=theme.main, linewidth=1.4, drawstyle="steps-post", zorder=2)
    for point in allocation.everything:
        _draw_point(drawing, axes, allocation, point, theme)
    _ring(axes, allocation, theme)
    _legend(drawing, axes, allocation, theme)
    return drawing


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


def _line(allocation: Allocation) -> tuple[list[float], list[float]]:
    positions = [place_of(allocation, point) for point in allocation.points]
    return [x for x, _ in positions], [y for _, y in positions]


def _draw_point(
    drawing: Drawing, axes: Axes, allocation: Allocation, point: AllocationPoint, theme: Theme
) -> None:
    x, y = place_of(allocation, point)
    is_uniform = point in allocation.uniform
    colour = theme.soft if is_uniform else theme.main
    (mark,) = axes.plot(
        [x],
        [y],
        marker="D" if is_uniform else "o",
        markersize=5,
        color=colour,
        linestyle="none",
        zorder=3,
    )
    drawing.add_tooltip(mark, _tooltip(point))
    if is_uniform:
        is_right = x > sum(axes.get_xlim()) / 2  # so that the name stays within the drawing
        axes.annotate(
            visible(point.name),
            (x, y),
            (-6 if is_right else 6, 5),
            textcoords="offset points",
            ha="right" if is_right else "left",
            color=theme.ink,
            fontsize=8,
            parse_math=False,
        )
    if (measured := achieved_place(allocation, point)) is not None:
        axes.plot([x, measured[0]], [y, measured[1]], color=theme.faint, linewidth=0.7, zorder=1)
        axes.plot(
            [measured[0]],
            [measured[1]],
            marker="D" if is_uniform else "o",
            markersize=6,
            color=theme.bad,
            markerfacecolor="none",
            linestyle="none",
            zorder=3,
        )


def _tooltip(point: AllocationPoint) -> str:
    achieved = point.achieved
    measured = (
        ""
        if achieved is None
        else f"; achieved {achieved.latency_ms:.3g} ms"
        + ("" if achieved.loss is None else f", loss {achieved.loss:.2g}")
    )
    size = readable_bytes(point.size_bytes)
    return (
        f"{point.name}: {point.words} · {point.latency_ms:.3g} ms, {size}, loss {point.loss:.2g} ± "
        f"{point.loss_error:.1g}{measured}"
    )


def _ring(axes: Axes, allocation: Allocation, theme: Theme) -> None:
    """Mark the chosen point and the limits."""
    x, y = place_of(allocation, allocation.best)
    axes.plot(
        [x],
        [y],
        marker="o",
        markersize=12,
        color=theme.good,
        markerfacecolor="none",
        markeredgewidth=2,
        linestyle="none",
    )
    axes.annotate(
        "chosen", (x, y), (-4, 11), textcoords="offset points", color=theme.good, fontsize=9
    )
    low, high = axes.get_xlim()
    if (limit := allocation.limits.get(allocation.axis)) is not None and low <= limit <= high:
        axes.axvline(limit, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))
    if (limit := allocation.limits.get("loss")) is not None:
        axes.axhline(limit, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))


def _legend(drawing: Drawing, axes: Axes, allocation: Allocation, theme: Theme) -> None:
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
    drawing.legend(
        handles=marks,
        loc="outside lower right",
        ncols=3,
        fontsize=8,
        frameon=False,
        labelcolor=theme.ink,
    )


def _scale(axes: Axes, allocation: Allocation, theme: Theme) -> None:
    """Set scales: losses by powers of ten, linear around zero, since a measured loss may be
    below it.
    """
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
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(round(value))))
    axes.set_xlabel(
        "predicted latency, ms" if allocation.axis == "latency_ms" else "size",
        color=theme.ink,
        fontsize=9,
    )
    unit = "rise of the loss" if allocation.unit == "loss" else "error of the output"
    axes.set_ylabel(unit, color=theme.ink, fontsize=9)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
