"""Importance of channels, a row per layer; the latency of a layer by its numbers of channels."""

from __future__ import annotations

import math

import numpy
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec

from ..records import Importance, LayerImportance, Staircase
from .sheet import MARGIN, SMALL, WIDTH, Sheet
from .style import Drawing, Theme, blank

MAX_LAYERS = 40
LINE = 0.34  # inches per layer
BARS = (2.2, 4.95)  # inches from the left
CHANNELS, BELOW = 5.55, WIDTH - MARGIN
TOP = 0.62
CUT_OFF = 4.0  # times the mean; higher bars are cut off
MAX_BARS = 400  # per layer


def draw(importance: Importance, *, dark: bool = False) -> Drawing:
    """Bars on a square-root scale, so that small ones, the candidates for pruning, are visible."""
    rows = importance.rows[:MAX_LAYERS]
    left_out = len(importance.rows) - len(rows)
    sheet = Sheet(
        importance.title, height=TOP + LINE * (len(rows) + bool(left_out)) + 0.1, dark=dark
    )
    sheet.write(MARGIN, 0.1, importance.unit, size=SMALL, colour=sheet.theme.soft)
    sheet.write(
        BARS[0],
        0.34,
        f"sorted; dotted: the layer's mean; up to {CUT_OFF:g} ×",
        size=SMALL,
        colour=sheet.theme.soft,
    )
    sheet.write(CHANNELS, 0.34, "channels", size=SMALL, side="right", colour=sheet.theme.soft)
    sheet.write(
        BELOW, 0.34, "below half the mean", size=SMALL, side="right", colour=sheet.theme.soft
    )
    for index, row in enumerate(rows):
        _draw_row(sheet, row, TOP + LINE * index)
    if left_out:
        sheet.write(
            MARGIN, TOP + LINE * len(rows), f"{left_out} more left out", colour=sheet.theme.soft
        )
    return sheet.drawing


def _draw_row(sheet: Sheet, row: LayerImportance, y: float) -> None:
    sheet.fit(MARGIN, y, row.layer, BARS[0] - 0.15 - MARGIN)
    sheet.write(CHANNELS, y, f"{row.channels:,}", side="right")
    if not row.values:
        sheet.fit(BARS[0], y, row.note or "not judged", BARS[1] - BARS[0], size=SMALL)
        return
    _draw_bars(sheet, row, y)
    below = int((row.normalised < 0.5).sum())
    sheet.write(
        BELOW,
        y,
        "the answer" if row.is_answer else f"{below:,} ({below / row.channels:.0%})",
        side="right",
    )


def _draw_bars(sheet: Sheet, row: LayerImportance, y: float) -> None:
    """Draw all bars as one area; the part below half the mean is grey."""
    values = -numpy.sort(-row.normalised)
    picked = values[
        numpy.linspace(0, len(values) - 1, min(len(values), MAX_BARS)).round().astype(int)
    ]
    edges = numpy.linspace(*BARS, len(picked) + 1)
    base, height = y + 0.42 * LINE, 0.84 * LINE
    tops = base - height * numpy.sqrt(numpy.minimum(picked, CUT_OFF) / CUT_OFF)
    theme = sheet.theme
    for colour, part in ((theme.main, picked >= 0.5), (theme.faint, picked < 0.5)):
        if part.any():
            first, last = int(part.argmax()), len(part) - int(part[::-1].argmax())
            sheet.axes.fill_between(
                edges[first : last + 1],
                base,
                [*tops[first:last], tops[last - 1]],
                step="post",
                color=colour,
                alpha=0.8,
                linewidth=0,
            )
    mean = base - height * math.sqrt(1 / CUT_OFF)
    sheet.axes.plot(
        BARS, (mean, mean), color=theme.ink, linewidth=0.6, linestyle=(0, (1, 2)), alpha=0.7
    )


def draw_staircase(record: Staircase, *, dark: bool = False) -> Drawing:
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
