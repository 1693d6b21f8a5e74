"""The predicted peak and that of each change against a memory limit; page faults with and without a
memory pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..records import Fit, PoolCalls, readable_bytes
from .style import CATEGORIES, Drawing, Plot, Theme, blank, visible, without_middle

HEIGHT = 0.62  # of a bar, of the distance between two
WIDEST_NAME = 36  # characters
SMALL = 8  # points


class Part(NamedTuple):
    """A part of a bar."""

    length: float
    colour: str
    tooltip: str
    label: str = ""  # in the legend


class BarRow(NamedTuple):
    """A bar; without parts its name alone."""

    name: str
    parts: tuple[Part, ...]
    text: str


def draw_bar_rows(axes: Plot, rows: Sequence[BarRow]) -> None:
    """Draw the rows, the first at the top."""
    for place, row in enumerate(rows):
        end = 0.0
        for length, colour, tooltip, label in row.parts:
            (bar,) = axes.barh(
                place, length, left=end, height=HEIGHT, color=colour, alpha=0.85, label=label
            )
            axes.tooltip(bar, tooltip)
            end += length
        if row.parts:
            axes.note(row.text, (end, place), (4, 0), va="center", size=SMALL)
    names = [without_middle(visible(row.name), WIDEST_NAME) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=SMALL, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)


NEAR = 1.6  # a limit within this ratio of the largest peak is drawn, a farther one is named


def draw(fit: Fit, *, dark: bool = False) -> Drawing:
    """A bar for the predicted peak, stacked by category, and one for each change."""
    height = 1.9 + 0.34 * len(fit.remedies)
    axes = blank(fit.title, height=height, dark=dark)
    draw_bar_rows(axes, _rows(fit, axes.theme))
    _draw_limit(axes, fit)
    if fit.predicted.peak_bytes:
        axes.legend_beside()
    return axes.drawing


def _rows(fit: Fit, theme: Theme) -> list[BarRow]:
    """The peaks, each with its bytes and whether it fits."""

    def text(count: int) -> str:
        return f"{readable_bytes(count)}, {'fits' if count <= fit.limit_bytes else 'too much'}"

    parts = tuple(
        Part(count, theme.tone(CATEGORIES[name]), f"{name}: {readable_bytes(count)}", name)
        for name, count in fit.predicted.held.by_category.items()
        if count
    )
    rows = [BarRow("predicted", parts, text(fit.predicted.peak_bytes))]
    for remedy in fit.remedies:
        count = remedy.peak_bytes
        tooltip = f"{visible(remedy.change)}: {readable_bytes(count)}\n{remedy.how}"
        rows.append(BarRow(remedy.change, (Part(count, theme.faint, tooltip),), text(count)))
    return rows


def _draw_limit(axes: Plot, fit: Fit) -> None:
    """The limit as a line, where it is near the peaks."""
    most = max([fit.predicted.peak_bytes, *(remedy.peak_bytes for remedy in fit.remedies), 1])
    is_near = fit.limit_bytes <= NEAR * most
    reach = max(most, fit.limit_bytes) if is_near else most
    axes.set_xlim(0, 1.32 * reach)
    axes.in_bytes(axes.xaxis)
    limit = f"limit {readable_bytes(fit.limit_bytes)}"
    if is_near:
        axes.axvline(fit.limit_bytes, color=axes.theme.bad, linewidth=1.4)
    axes.label(x=f"bytes at the peak; {limit if is_near else f'the {limit} is beyond'}")


def draw_pool(calls: PoolCalls, *, dark: bool = False) -> Drawing:
    """A bar for the calls without the pool, and one for those with it."""
    axes = blank(calls.title, height=1.7, dark=dark)
    counts = {"without the pool": calls.faults_without, "with the pool": calls.faults_with}
    rows = []
    for name, count in counts.items():
        text = "" if count is None else f"{count:,.0f}"
        tooltip = f"{text} page faults a call"
        parts = () if count is None else (Part(count, axes.theme.main, tooltip),)
        rows.append(BarRow(name, parts, text))
    draw_bar_rows(axes, rows)
    axes.set_xlim(0, 1.2 * max([1.0, *(count for count in counts.values() if count is not None)]))
    axes.label(x="page faults a call")
    return axes.drawing
