"""The switches of an accelerated training loop: how much faster a step is with each, and why it is
on or off.
"""

from __future__ import annotations

import math
from typing import Any

from ..records import AccelerationStatus, SwitchStatus
from ..records.quality import readable_interval
from .sheet import MARGIN, SMALL, WIDTH, Sheet
from .style import Drawing, wrapped

ROW, LINE = 0.46, 0.145
BAR_HEIGHT = 0.17
MARK_X, NAME_X, NAME_WIDTH = 0.2, 0.36, 1.35
BARS = (1.75, 2.95)  # from where to where
NUMBER_X, REASON_X = 3.13, 4.33
REASON_CHARACTERS, REASON_LINES = 40, 3
NARROWEST = 1.25  # the axis reaches at least this ratio and its inverse
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
MARKERS = {"on": "o", "judging": "D", "waiting": "o", "taken back": "x", "not offered": "_"}


def draw(status: AccelerationStatus, *, dark: bool = False) -> Drawing:
    """A row a switch: its state, a bar from 1 × to its speed-up with the interval, the reason."""
    rows = status.rows
    sheet = Sheet(status.title, height=0.55 + ROW * len(rows) if rows else 0.1, dark=dark)
    if rows:
        ends = _axis(rows)
        bottom = 0.2 + ROW * len(rows)
        _draw_axis(sheet, ends, bottom)
        for index, row in enumerate(rows):
            _draw_row(sheet, row, ends, 0.2 + ROW * (index + 0.5))
    return sheet.drawing


def _axis(rows: tuple[SwitchStatus, ...]) -> tuple[float, float]:
    """The ratios at the axis's ends, as far from 1 on both sides as the intervals need."""
    values = [value for row in rows for value in (row.ratio, *(row.interval or ())) if value]
    furthest = max([NARROWEST, *(max(value, 1 / value) for value in values)])
    return 1 / furthest, furthest


def _place(ratio: float, ends: tuple[float, float]) -> float:
    """Where a ratio stands on the axis, whose steps are factors."""
    low, high = map(math.log, ends)
    share = (math.log(max(ratio, ends[0])) - low) / (high - low)
    return BARS[0] + min(share, 1.0) * (BARS[1] - BARS[0])


def _draw_axis(sheet: Sheet, ends: tuple[float, float], bottom: float) -> None:
    theme = sheet.theme
    shown = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
    for ratio in shown if len(shown) > 1 else (0.8, 1.0, 1.25):
        x, is_one = _place(ratio, ends), ratio == 1.0
        colour = theme.ink if is_one else theme.faint
        style = "solid" if is_one else (0, (2, 3))
        sheet.axes.plot((x, x), (0.16, bottom), color=colour, linewidth=0.8, linestyle=style)
        sheet.write(x, bottom + 0.12, f"{ratio:g} ×", size=SMALL, side="center")
    sheet.write(NUMBER_X, bottom + 0.12, "a step is so many times faster", size=SMALL)


def _draw_row(sheet: Sheet, row: SwitchStatus, ends: tuple[float, float], y: float) -> None:
    theme = sheet.theme
    colours = {"on": theme.good, "taken back": theme.bad, "judging": theme.main}
    colour = colours.get(row.state, theme.soft)
    sheet.line((MARGIN, WIDTH - MARGIN), y - ROW / 2, theme.faint, width=0.4)
    look: dict[str, Any] = {"marker": MARKERS[row.state], "markeredgewidth": 1.6}
    sheet.axes.mark((MARK_X, y), colour, is_hollow=row.state == "waiting", **look)
    sheet.fit(NAME_X, y - LINE / 2, row.name, NAME_WIDTH)
    sheet.write(NAME_X, y + LINE / 2, row.state, size=SMALL, colour=colour)
    if row.ratio is not None and row.interval is not None:
        one, end = _place(1.0, ends), _place(row.ratio, ends)
        spread = [_place(value, ends) for value in row.interval]
        bar: dict[str, Any] = {"color": colour, "alpha": 0.4, "linewidth": 0}
        sheet.axes.barh(y, end - one, left=one, height=BAR_HEIGHT, **bar)
        sheet.line((spread[0], spread[1]), y, colour, 2.4)
        sheet.axes.mark((end, y), colour, marker="|", markersize=9, markeredgewidth=1.6)
        text = f"{row.ratio:.2f} × ({readable_interval(row.interval)})"
        sheet.write(NUMBER_X, y, text, size=SMALL)
    lines = wrapped(row.why, REASON_CHARACTERS, REASON_LINES) if row.why else []
    for index, line in enumerate(lines):
        height = y + LINE * (index - (len(lines) - 1) / 2)
        sheet.fit(REASON_X, height, line, WIDTH - MARGIN - REASON_X, size=SMALL)
