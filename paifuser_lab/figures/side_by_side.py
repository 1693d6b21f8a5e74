"""Layers before and after a change, the largest changes first."""

from __future__ import annotations

from ..records import LayerPair, SideBySide
from .sheet import LINE, MARGIN, ROW, SMALL, WIDTH, Sheet, decimals
from .style import Drawing

MAX_LAYERS = 12
NAMES, BARS = 2.3, (2.5, 4.75)
BEFORE, AFTER, CHANGE = 5.4, 6.1, 6.9  # where columns end


def draw(pair: SideBySide, *, dark: bool = False) -> Drawing:
    """A row per layer with its time before (ring) and after (dot); above them the predicted saving,
    if any.
    """
    rows = [row for row in pair.largest if row.saved_ms][:MAX_LAYERS]
    left = [row for row in pair.rows if row not in rows]
    start = 0.5 + (LINE if pair.promise else 0.0)
    sheet = Sheet(pair.title, height=start + ROW * (len(rows) + bool(left)), dark=dark)
    if pair.promise:
        sheet.write(MARGIN, 0.06, pair.promise, weight="bold")
    _draw_head(sheet, start - 0.24)
    widest = max((max(row.before_ms or 0.0, row.after_ms or 0.0) for row in rows), default=1.0)
    for index, row in enumerate(rows):
        _draw_row(sheet, row, pair, start + ROW * index, widest=widest)
    if left:
        _draw_rest(sheet, left, start + ROW * len(rows), places=decimals(widest))
    return sheet.drawing


def tooltip(row: LayerPair, pair: SideBySide) -> str:
    """The tooltip of a layer in both models."""
    kinds = " → ".join(dict.fromkeys(kind for kind in (row.kind_before, row.kind_after) if kind))
    took = " → ".join(
        "not there" if ms is None else f"{ms:.4g} ms" for ms in (row.before_ms, row.after_ms)
    )
    return f"{row.layer or pair.before} ({kinds})\n{took}" + (f"\n{row.note}" if row.note else "")


def _draw_head(sheet: Sheet, y: float) -> None:
    soft = sheet.theme.soft
    sheet.write(MARGIN, y, "largest changes", size=SMALL, colour=soft)
    sheet.write(BARS[0], y, "self time: ring before, dot after", size=SMALL, colour=soft)
    for x, name in ((BEFORE, "before ms"), (AFTER, "after ms"), (CHANGE, "change ms")):
        sheet.write(x, y, name, size=SMALL, colour=soft, side="right")
    sheet.line((MARGIN, WIDTH - MARGIN), y + 0.1, sheet.theme.faint, 0.6)


def _draw_row(sheet: Sheet, row: LayerPair, pair: SideBySide, y: float, *, widest: float) -> None:
    theme, scale, places = sheet.theme, (BARS[1] - BARS[0]) / (widest or 1.0), decimals(widest)
    colour = theme.good if row.saved_ms > 0 else theme.bad
    before, after = (BARS[0] + (ms or 0.0) * scale for ms in (row.before_ms, row.after_ms))
    sheet.fit(MARGIN, y, row.layer or f"{pair.before} (itself)", NAMES - MARGIN)
    marks = sheet.axes.plot(
        (before, after), (y, y), color=colour, linewidth=2.6, alpha=0.55, solid_capstyle="round"
    )
    if row.before_ms is not None:
        marks += sheet.axes.plot(
            [before],
            [y],
            marker="o",
            markersize=6,
            markerfacecolor=theme.paper,
            color=colour,
            markeredgewidth=1.4,
        )
    if row.after_ms is not None:
        marks += sheet.axes.plot(
            [after], [y], marker="o", markersize=6, color=colour, markeredgewidth=1.4
        )
    for mark in marks:
        sheet.drawing.add_tooltip(mark, tooltip(row, pair))
    for x, ms in ((BEFORE, row.before_ms), (AFTER, row.after_ms)):
        sheet.write(x, y, "–" if ms is None else f"{ms:.{places}f}", side="right")
    sheet.write(
        CHANGE, y, _change(row.saved_ms, places), side="right", colour=colour, weight="bold"
    )


def _draw_rest(sheet: Sheet, left: list[LayerPair], y: float, *, places: int) -> None:
    soft = sheet.theme.soft
    sheet.write(MARGIN, y, f"{len(left)} more, together", colour=soft)
    before, after = (
        sum(ms or 0.0 for ms in times)
        for times in zip(*((r.before_ms, r.after_ms) for r in left), strict=True)
    )
    for x, text in (
        (BEFORE, f"{before:.{places}f}"),
        (AFTER, f"{after:.{places}f}"),
        (CHANGE, _change(before - after, places)),
    ):
        sheet.write(x, y, text, side="right", colour=soft)


def _change(saved_ms: float, places: int) -> str:
    """−3.2 saves, +0.4 costs."""
    text = f"{abs(saved_ms):.{places}f}"
    return text if float(text) == 0 else f"{'−' if saved_ms > 0 else '+'}{text}"
