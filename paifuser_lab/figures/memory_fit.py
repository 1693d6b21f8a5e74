"""The predicted peak by category and that of each change, against a memory limit."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import Fit, readable_bytes
from .memory_snapshot import COLOURS
from .sheet import visible, without_middle, wrapped
from .style import Drawing, Theme, blank, legend_beside

CATEGORY_COLOURS = COLOURS | {"workspace": "#d55e00"}
NEAR = 1.6  # a limit within this ratio of the largest peak is drawn, a farther one is named


def draw(fit: Fit, *, dark: bool = False) -> Drawing:
    """A bar for the predicted peak, stacked by category, and one for each change."""
    height = 1.9 + 0.34 * len(fit.remedies)
    drawing, axes, theme = blank("\n".join(wrapped(fit.title, 90)), height=height, dark=dark)
    drawing.set_label(visible(fit.title))
    left = 0
    for name, count in fit.predicted.held.by_category.items():
        if not count:
            continue
        (bar,) = axes.barh(
            0, count, left=left, height=0.62, color=CATEGORY_COLOURS[name], alpha=0.85, label=name
        )
        drawing.add_tooltip(bar, f"{name}: {readable_bytes(count)}")
        left += count
    for row, remedy in enumerate(fit.remedies, 1):
        (bar,) = axes.barh(row, remedy.peak_bytes, height=0.62, color=theme.faint, alpha=0.7)
        drawing.add_tooltip(
            bar, f"{visible(remedy.change)}: {readable_bytes(remedy.peak_bytes)}\n{remedy.how}"
        )
    _name_rows(axes, fit, theme)
    _draw_limit(axes, fit, theme)
    if left:
        legend_beside(axes, theme)
    return drawing


def _name_rows(axes: Axes, fit: Fit, theme: Theme) -> None:
    """Names on the left; beside each bar its bytes and whether it fits."""
    peaks = [("predicted", fit.predicted.peak_bytes)]
    peaks += [(remedy.change, remedy.peak_bytes) for remedy in fit.remedies]
    labels = [without_middle(visible(name), 36) for name, _ in peaks]
    axes.set_yticks(range(len(peaks)), labels, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    for row, (_, count) in enumerate(peaks):
        verdict = "fits" if count <= fit.limit_bytes else "too much"
        axes.annotate(
            f"{readable_bytes(count)}, {verdict}",
            (count, row),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=theme.ink,
            fontsize=8,
        )


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
