"""What is kept of the metric against latency and size; a line through what nothing beats."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter

from ..records import TradeOff, readable_bytes
from .style import Drawing, Theme, blank

SIDES = (("latency_ms", "latency, ms"), ("size_bytes", "size of the weights"))


def draw(found: TradeOff, *, dark: bool = False) -> Drawing:
    """Two sides, each variant with the number of its row, and the names under them; up and left is
    better.
    """
    drawing, axes, theme = blank(found.title, height=3.4 + 0.17 * len(found.bargains), dark=dark)
    axes.set_axis_off()
    grid = GridSpec(2, 2, figure=drawing, height_ratios=[3.0, 0.17 * len(found.bargains)])
    axes.set_subplotspec(grid[1, :])
    for place, (axis, label) in enumerate(SIDES):
        side = drawing.add_subplot(grid[0, place], facecolor=theme.paper)
        _draw_side(drawing, side, found, axis, theme)
        side.set_xlabel(label, color=theme.ink, fontsize=9)
        if place == 0:
            side.set_ylabel(found.unit, color=theme.ink, fontsize=9)
    names = "\n".join(_numbered(number, one.name) for number, one in enumerate(found.bargains))
    axes.text(
        0,
        1,
        names,
        va="top",
        color=theme.ink,
        fontsize=8,
        linespacing=1.35,
        parse_math=False,
        transform=axes.transAxes,
    )
    return drawing


def _draw_side(drawing: Drawing, axes: Axes, found: TradeOff, axis: str, theme: Theme) -> None:
    best = found.unbeaten(axis)
    axes.plot(
        [getattr(one, axis) for one in best],
        [one.worth for one in best],
        color=theme.main,
        linewidth=1.4,
        drawstyle="steps-post",
    )
    for number, one in enumerate(found.bargains):
        at = getattr(one, axis), one.worth
        (mark,) = axes.plot(
            [at[0]],
            [at[1]],
            marker="o",
            markersize=6,
            color=theme.main if one in best else theme.faint,
        )
        drawing.add_tooltip(
            mark,
            f"{one.name}: {one.latency_ms:.3g} ms, {readable_bytes(one.size_bytes)}, {found.unit} "
            f"{one.worth:.4f}",
        )
        axes.annotate(
            str(number), at, (5, 4), textcoords="offset points", color=theme.ink, fontsize=8.5
        )
    axes.set_xlim(0, 1.15 * max(getattr(one, axis) for one in found.bargains))
    axes.margins(y=0.15)
    if axis == "size_bytes":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(round(value))))
        axes.locator_params(axis="x", nbins=4)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)


def _numbered(number: int, name: str, most: int = 110) -> str:
    """A name that fits, with its number unless it begins with that; of a long recipe its end tells
    it from the others.
    """
    short = name if len(name) <= most else f"… {name[-most:]}"
    return short if name.startswith(f"{number}. ") else f"{number}. {short}"
