"""The latency of a layer by its output channels and by its input channels, with the efficient
widths marked.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec

from ..records import Staircase
from .style import Drawing, Theme, blank


def draw(record: Staircase, *, dark: bool = False) -> Drawing:
    """A step plot per side: a width that was not measured takes the latency of the next wider
    one.
    """
    drawing, left, theme = blank(record.likeness, height=2.9, dark=dark)
    top = 1.12 * max(*record.by_made, *record.by_read)
    if len(record.reads) > 1:
        grid = GridSpec(1, 2, figure=drawing)
        left.set_subplotspec(grid[0, 0])
        right = drawing.add_subplot(grid[0, 1], facecolor=theme.paper)
        _draw_side(right, record.reads, record.by_read, record.worth_reading, theme, top)
        right.set_xlabel("channels read", color=theme.ink, fontsize=9)
    _draw_side(left, record.makes, record.by_made, record.worth_making, theme, top)
    left.set_xlabel("channels made", color=theme.ink, fontsize=9)
    left.set_ylabel("ms", color=theme.ink, fontsize=9)
    return drawing


def _draw_side(
    axes: Axes,
    widths: tuple[int, ...],
    times: tuple[float, ...],
    worth: tuple[int, ...],
    theme: Theme,
    top: float,
) -> None:
    axes.step(widths, times, where="pre", color=theme.main, linewidth=1.8)
    axes.plot(widths, times, color=theme.main, linestyle="none", marker="o", markersize=3)
    time_of = dict(zip(widths, times, strict=True))
    axes.plot(
        worth,
        [time_of[width] for width in worth],
        color=theme.good,
        linestyle="none",
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgewidth=1.8,
    )
    axes.set_xlim(0, 1.06 * widths[-1])
    axes.set_ylim(0, top)
    axes.set_xticks(worth if len(worth) <= 9 else widths)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)
