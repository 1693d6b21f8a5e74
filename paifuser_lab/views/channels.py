"""Importance of channels, a row per layer; the latency of a layer by its numbers of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..records import Importance, LayerImportance, Staircase
from .sheet import MARGIN, SMALL, WIDTH, Sheet
from .style import Drawing, Plot, blank

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
    height = TOP + LINE * (len(rows) + bool(left_out)) + 0.1
    sheet = Sheet(importance.title, height=height, dark=dark)
    sheet.hint(MARGIN, 0.1, importance.unit)
    sheet.hint(BARS[0], 0.34, f"sorted; dotted: the layer's mean; up to {CUT_OFF:g} ×")
    sheet.hint(CHANNELS, 0.34, "channels", side="right")
    sheet.hint(BELOW, 0.34, "below half the mean", side="right")
    for index, row in enumerate(rows):
        _draw_row(sheet, row, TOP + LINE * index)
    if left_out:
        sheet.hint(MARGIN, TOP + LINE * len(rows), f"{left_out} more left out")
    return sheet.drawing


def _draw_row(sheet: Sheet, row: LayerImportance, y: float) -> None:
    sheet.fit(MARGIN, y, row.layer, BARS[0] - 0.15 - MARGIN)
    sheet.write(CHANNELS, y, f"{row.channels:,}", side="right")
    if not row.values:
        sheet.fit(BARS[0], y, row.note or "not judged", BARS[1] - BARS[0], size=SMALL)
        return
    _draw_bars(sheet, row, y)
    below = int((row.normalised < 0.5).sum())
    text = "the answer" if row.is_answer else f"{below:,} ({below / row.channels:.0%})"
    sheet.write(BELOW, y, text, side="right")


def _draw_bars(sheet: Sheet, row: LayerImportance, y: float) -> None:
    """Draw all bars as one area; the part below half the mean is grey."""
    values = -numpy.sort(-row.normalised)
    count = min(len(values), MAX_BARS)
    picked = values[numpy.linspace(0, len(values) - 1, count).round().astype(int)]
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
    dots: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (1, 2)), "alpha": 0.7}
    sheet.axes.plot(BARS, (mean, mean), color=theme.ink, **dots)


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
