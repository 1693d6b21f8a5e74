"""The latency of a layer by its numbers of channels."""

from __future__ import annotations

from ..records import Staircase
from .style import Drawing, Plot, blank


def draw_staircase(record: Staircase, *, dark: bool = False) -> Drawing:
    """A step plot per side; a width that was not measured has the next wider one's latency."""
    axes = blank(record.likeness, height=2.9, dark=dark)
    top = 1.12 * max(*record.by_made, *record.by_read)
    if len(record.reads) > 1:
        grid = axes.drawing.add_gridspec(1, 2)
        axes.set_subplotspec(grid[0, 0])
        right = axes.drawing.add_plot(grid[0, 1])
        _draw_side(right, record.reads, record.by_read, record.worth_reading, top)
        right.label(x="channels read")
    _draw_side(axes, record.makes, record.by_made, record.worth_making, top)
    axes.label(x="channels made", y="ms")
    return axes.drawing


def _draw_side(
    axes: Plot,
    widths: tuple[int, ...],
    times: tuple[float, ...],
    worth: tuple[int, ...],
    top: float,
) -> None:
    theme = axes.theme
    axes.step(widths, times, where="pre", color=theme.main, linewidth=1.8)
    axes.plot(widths, times, color=theme.main, linestyle="none", marker="o", markersize=3)
    time_of = dict(zip(widths, times, strict=True))
    for width in worth:
        axes.ring((width, time_of[width]))
    axes.set_xlim(0, 1.06 * widths[-1])
    axes.set_ylim(0, top)
    axes.set_xticks(worth if len(worth) <= 9 else widths)
