"""Where layers run as one: a call of them apart over a call as one, in the order of the model;
those that stay apart with the reason.
"""

from __future__ import annotations

from textwrap import wrap

from matplotlib.patches import Rectangle

from ..records import Fusion, FusionMap
from .sheet import MARGIN, SMALL, WIDTH, Sheet, decimals
from .style import Drawing, Theme

SHOWN = 40
PLACE = 0.36  # inches of a place
NAMES, BARS = 2.85, (3.0, 4.75)
MS, SPEED = 5.9, WIDTH - MARGIN  # where columns end
TOP = 0.46
BAR = 0.1
TINY = 6.8
NOTE, LINE = 110, 0.18  # letters of a line of notes, and its inches


def draw(found: FusionMap, *, dark: bool = False) -> Drawing:
    """Two bars a group of layers: grey unfused, coloured fused; with the reason where unfused."""
    places = found.fusions[:SHOWN]
    left_out = len(found.fusions) - len(places)
    notes = [line for note in found.notes for line in wrap(note, NOTE)]
    below = TOP + PLACE * (len(places) + bool(left_out))
    sheet = Sheet(
        f"{found.workload} on {found.machine}: {found.summary}",
        height=below + LINE * len(notes),
        dark=dark,
    )
    _draw_head(sheet)
    longest = max((ms for one in places for ms in (one.apart_ms, one.fused_ms) if ms), default=1.0)
    for place, one in enumerate(places):
        _draw_place(sheet, one, TOP + PLACE * place, longest)
    if left_out:
        sheet.write(
            MARGIN, TOP + PLACE * len(places), f"{left_out} more left out", colour=sheet.theme.soft
        )
    for index, line in enumerate(notes):
        sheet.write(MARGIN, below + LINE * index, line, size=SMALL, colour=sheet.theme.soft)
    return sheet.drawing


def tooltip(fusion: Fusion) -> str:
    """The tooltip of fused or unfused layers."""
    times = (
        ""
        if fusion.apart_ms is None or fusion.fused_ms is None
        else f"\n{fusion.apart_ms:.4g} ms apart → {fusion.fused_ms:.4g} ms fused"
    )
    runs = f" · {fusion.runs}" if fusion.runs else ""
    return f"{' + '.join(fusion.layers)}\n{fusion.pattern}{runs}{times}" + (
        f"\n{fusion.reason}" if fusion.reason else ""
    )


def _draw_head(sheet: Sheet) -> None:
    soft = sheet.theme.soft
    sheet.write(MARGIN, 0.1, "places, in the order of the model", size=SMALL, colour=soft)
    sheet.write(BARS[0], 0.1, "apart above, as one below", size=SMALL, colour=soft)
    sheet.write(MS, 0.1, "ms apart → one", size=SMALL, side="right", colour=soft)
    sheet.write(SPEED, 0.1, "times as fast", size=SMALL, side="right", colour=soft)
    sheet.line((MARGIN, WIDTH - MARGIN), 0.22, sheet.theme.faint, 0.6)


def _draw_place(sheet: Sheet, one: Fusion, y: float, longest: float) -> None:
    theme = sheet.theme
    _write_end(sheet, y - 0.07, _names(one))
    _write_begin(sheet, y + 0.09, f"{one.pattern} · {one.runs}" if one.runs else one.pattern)
    _draw_bars(sheet, one, y, longest)
    if one.apart_ms is None or one.fused_ms is None:
        sheet.fit(BARS[0], y, one.reason or "not timed", SPEED - BARS[0], size=SMALL)
        return
    places = decimals(longest)
    sheet.write(MS, y, f"{one.apart_ms:.{places}f} → {one.fused_ms:.{places}f}", side="right")
    speed = one.speedup or 1.0
    text = f"{speed:.2f} ×" + (" slower" if speed < 0.995 else "")
    sheet.write(
        SPEED,
        y,
        text,
        side="right",
        colour=_tone(one, theme),
        weight="bold" if one.standing == "fused" else "normal",
    )


def _write_end(sheet: Sheet, y: float, text: str) -> None:
    """Text that gives up its beginning where it is too long: what tells layers apart stands at the
    end.
    """
    mark = sheet.write(MARGIN, y, text)
    while sheet.width_of(mark) > NAMES - MARGIN and len(text) > 6:
        text = text[max(1, len(text) // 24) :]
        mark.set_text(f"…{text}")


def _write_begin(sheet: Sheet, y: float, text: str) -> None:
    """Small text that gives up its end where it is too long."""
    mark = sheet.write(MARGIN, y, text, size=TINY, colour=sheet.theme.soft)
    while sheet.width_of(mark) > NAMES - MARGIN and len(text) > 6:
        text = text[: -max(1, len(text) // 24)]
        mark.set_text(f"{text}…")


def _draw_bars(sheet: Sheet, one: Fusion, y: float, longest: float) -> None:
    theme, scale = sheet.theme, (BARS[1] - BARS[0]) / longest
    for ms, colour, top in (
        (one.apart_ms, theme.faint, y - BAR - 0.01),
        (one.fused_ms, _tone(one, theme), y + 0.01),
    ):
        if ms is None or one.fused_ms is None:
            continue
        is_idle = (
            one.standing != "fused" and colour != theme.faint
        )  # what does not run as one is only outlined
        mark = Rectangle(
            (BARS[0], top),
            ms * scale,
            BAR,
            facecolor="none" if is_idle else colour,
            edgecolor=colour,
            linewidth=0.8,
        )
        sheet.axes.add_patch(mark)
        sheet.drawing.add_tooltip(mark, tooltip(one))


def _tone(one: Fusion, theme: Theme) -> str:
    if one.standing == "slower" or (one.speedup or 1.0) < 0.995:
        return theme.bad
    return theme.good if one.standing == "fused" else theme.soft


def _names(one: Fusion) -> str:
    """The first layer's path, and of the others what they do not share with it: 'layer1.0.conv1 +
    bn1 + relu'.
    """
    under, _, _ = one.place.rpartition(".")
    return " + ".join(
        [
            one.place,
            *(layer.removeprefix(f"{under}.") if under else layer for layer in one.layers[1:]),
        ]
    )
