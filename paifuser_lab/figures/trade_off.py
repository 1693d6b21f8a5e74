"""The metric against latency and size, with a line along the Pareto frontier."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter

from ..records import TradeOff, readable_bytes
from .style import Drawing, Theme, blank

SIDES = (("latency_ms", "latency, ms"), ("size_bytes", "size of the weights"))


def draw(trade_off: TradeOff, *, dark: bool = False) -> Drawing:
    """Two plots of numbered variants, with their names below; up and left is better."""
    drawing, axes, theme = blank(
        trade_off.title, height=3.4 + 0.17 * len(trade_off.bargains), dark=dark
    )
    axes.set_axis_off()
    grid = GridSpec(2, 2, figure=drawing, height_ratios=[3.0, 0.17 * len(trade_off.bargains)])
    axes.set_subplotspec(grid[1, :])
    for index, (axis, label) in enumerate(SIDES):
        side = drawing.add_subplot(grid[0, index], facecolor=theme.paper)
        _draw_side(drawing, side, trade_off, axis, theme)
        side.set_xlabel(label, color=theme.ink, fontsize=9)
        if index == 0:
            side.set_ylabel(trade_off.unit, color=theme.ink, fontsize=9)
    names = "\n".join(_numbered(number, row.name) for number, row in enumerate(trade_off.bargains))
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


def _draw_side(drawing: Drawing, axes: Axes, trade_off: TradeOff, axis: str, theme: Theme) -> None:
    best = trade_off.unbeaten(axis)
    axes.plot(
        [getattr(row, axis) for row in best],
        [row.worth for row in best],
        color=theme.main,
        linewidth=1.4,
        drawstyle="steps-post",
    )
    for number, row in enumerate(trade_off.bargains):
        position = getattr(row, axis), row.worth
        (mark,) = axes.plot(
            [position[0]],
            [position[1]],
            marker="o",
            markersize=6,
            color=theme.main if row in best else theme.faint,
        )
        drawing.add_tooltip(
            mark,
            f"{row.name}: {row.latency_ms:.3g} ms, {readable_bytes(row.size_bytes)}, "
            f"{trade_off.unit} {row.worth:.4f}",
        )
        axes.annotate(
            str(number), position, (5, 4), textcoords="offset points", color=theme.ink, fontsize=8.5
        )
    axes.set_xlim(0, 1.15 * max(getattr(row, axis) for row in trade_off.bargains))
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
    """A name with its number, unless it starts with it; the end of a long recipe is kept, since it
    distinguishes it.
    """
    short = name if len(name) <= most else f"… {name[-most:]}"
    return short if name.startswith(f"{number}. ") else f"{number}. {short}"
