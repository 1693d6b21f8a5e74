"""The predicted peak by category and that of each change, against a memory limit."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import Fit, readable_bytes
from .bar_rows import BarRow, Part, draw_bar_rows
from .memory_snapshot import COLOURS
from .sheet import visible, wrapped
from .style import Drawing, Theme, blank, legend_beside

CATEGORY_COLOURS = COLOURS | {"workspace": "#d55e00"}
NEAR = 1.6  # a limit within this ratio of the largest peak is drawn, a farther one is named


def draw(fit: Fit, *, dark: bool = False) -> Drawing:
    """A bar for the predicted peak, stacked by category, and one for each change."""
    height = 1.9 + 0.34 * len(fit.remedies)
    drawing, axes, theme = blank("\n".join(wrapped(fit.title, 90)), height=height, dark=dark)
    drawing.set_label(visible(fit.title))
    draw_bar_rows(drawing, axes, theme, _rows(fit, theme))
    _draw_limit(axes, fit, theme)
    if fit.predicted.peak_bytes:
        legend_beside(axes, theme)
    return drawing


def _rows(fit: Fit, theme: Theme) -> list[BarRow]:
    """The peaks, each with its bytes and whether it fits."""

    def text(count: int) -> str:
        return f"{readable_bytes(count)}, {'fits' if count <= fit.limit_bytes else 'too much'}"

    parts = tuple(
        Part(count, CATEGORY_COLOURS[name], f"{name}: {readable_bytes(count)}", name)
        for name, count in fit.predicted.held.by_category.items()
        if count
    )
    rows = [BarRow("predicted", parts, text(fit.predicted.peak_bytes))]
    for remedy in fit.remedies:
        count = remedy.peak_bytes
        tooltip = f"{visible(remedy.change)}: {readable_bytes(count)}\n{remedy.how}"
        rows.append(BarRow(remedy.change, (Part(count, theme.faint, tooltip),), text(count)))
    return rows


def _draw_limit(axes: Axes, fit: Fit, theme: Theme) -> None:
    """The limit as a line, where it is near the peaks."""
    most = max([fit.predicted.peak_bytes, *(remedy.peak_bytes for remedy in fit.remedies), 1])
    is_near = fit.limit_bytes <= NEAR * most
    reach = max(most, fit.limit_bytes) if is_near else most
    axes.set_xlim(0, 1.32 * reach)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: readable_bytes(int(value))))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    limit = f"limit {readable_bytes(fit.limit_bytes)}"
    if is_near:
        axes.axvline(fit.limit_bytes, color=theme.bad, linewidth=1.4)
    axes.set_xlabel(
        f"bytes at the peak; {limit if is_near else f'the {limit} is beyond'}",
        color=theme.ink,
        fontsize=9,
    )
