"""The frontier of an allocation: time or bytes against the predicted loss, the uniform choices
beside it, and what was achieved.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, SymmetricalLogLocator

from ..records import Allocation, AllocationPoint, readable_bytes
from .sheet import visible
from .style import Drawing, Theme, blank

FINEST = 1e-4  # of the greatest loss: below it the scale is linear, down to zero and past it


def draw(found: Allocation, *, dark: bool = False) -> Drawing:
    """A line through the frontier, a diamond a uniform choice, and a hollow mark where a point
    really came to lie.
    """
    drawing, axes, theme = blank(visible(found.title), height=4.2, dark=dark)
    _scale(axes, found, theme)
    axes.plot(*_line(found), color=theme.main, linewidth=1.4, drawstyle="steps-post", zorder=2)
    for point in found.everything:
        _draw_point(drawing, axes, found, point, theme)
    _ring(axes, found, theme)
    _legend(drawing, axes, found, theme)
    return drawing


def place_of(found: Allocation, point: AllocationPoint) -> tuple[float, float]:
    """Where a point is predicted to lie."""
    return (point.latency_ms if found.axis == "latency_ms" else point.size_bytes), point.loss


def achieved_place(found: Allocation, point: AllocationPoint) -> tuple[float, float] | None:
    """Where it came to lie; the time as that share of the baseline's, so that a machine that was
    slower then does not show.
    """
    did = point.achieved
    if did is None or did.loss is None:
        return None
    return (
        found.baseline_ms * did.latency_ms / did.baseline_ms
        if found.axis == "latency_ms"
        else did.size_bytes
    ), did.loss


def _line(found: Allocation) -> tuple[list[float], list[float]]:
    places = [place_of(found, point) for point in found.points]
    return [x for x, _ in places], [y for _, y in places]


def _draw_point(
    drawing: Drawing, axes: Axes, found: Allocation, point: AllocationPoint, theme: Theme
) -> None:
    x, y = place_of(found, point)
    is_uniform = point in found.uniform
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
        is_right = x > sum(axes.get_xlim()) / 2  # a name stays within the drawing
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
    if (real := achieved_place(found, point)) is not None:
        axes.plot([x, real[0]], [y, real[1]], color=theme.faint, linewidth=0.7, zorder=1)
        axes.plot(
            [real[0]],
            [real[1]],
            marker="D" if is_uniform else "o",
            markersize=6,
            color=theme.bad,
            markerfacecolor="none",
            linestyle="none",
            zorder=3,
        )


def _tooltip(point: AllocationPoint) -> str:
    did = point.achieved
    real = (
        ""
        if did is None
        else f"; achieved {did.latency_ms:.3g} ms"
        + ("" if did.loss is None else f", loss {did.loss:.2g}")
    )
    size = readable_bytes(point.size_bytes)
    return (
        f"{point.name}: {point.words} · {point.latency_ms:.3g} ms, {size}, loss {point.loss:.2g} ± "
        f"{point.loss_error:.1g}{real}"
    )


def _ring(axes: Axes, found: Allocation, theme: Theme) -> None:
    """The chosen point, and the limits that were given."""
    x, y = place_of(found, found.best)
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
    if (limit := found.limits.get(found.axis)) is not None and low <= limit <= high:
        axes.axvline(limit, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))
    if (limit := found.limits.get("loss")) is not None:
        axes.axhline(limit, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))


def _legend(drawing: Drawing, axes: Axes, found: Allocation, theme: Theme) -> None:
    words = [
        ("o", theme.main, theme.main, "frontier, predicted"),
        ("D", theme.soft, theme.soft, "one format for all"),
    ]
    if any(achieved_place(found, point) is not None for point in found.everything):
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


def _scale(axes: Axes, found: Allocation, theme: Theme) -> None:
    """Losses by powers of ten, linear around zero: an achieved loss may lie below it."""
    places = [place_of(found, point) for point in found.everything]
    places += [
        place for point in found.everything if (place := achieved_place(found, point)) is not None
    ]
    xs, ys = [x for x, _ in places], [y for _, y in places]
    sizes = [abs(y) for y in ys if y]
    finest = max(min(sizes, default=1.0), FINEST * max(sizes, default=1.0))
    axes.set_yscale("symlog", linthresh=finest)
    axes.set_ylim(min(0.0, 1.6 * min(ys)) - 0.2 * finest, max(finest, 2.5 * max(ys)))
    margin = 0.06 * (max(xs) - min(xs)) or 0.1 * max(xs)
    axes.set_xlim(min(xs) - margin, max(xs) + 2 * margin)
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=finest))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1g}"))
    axes.xaxis.set_major_locator(MaxNLocator(7))
    if found.axis == "size_bytes":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(round(value))))
    axes.set_xlabel(
        "predicted latency, ms" if found.axis == "latency_ms" else "size",
        color=theme.ink,
        fontsize=9,
    )
    unit = "rise of the loss" if found.unit == "loss" else "error of the output"
    axes.set_ylabel(unit, color=theme.ink, fontsize=9)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
