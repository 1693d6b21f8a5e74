"""Fusion sites in the model's order: the latency unfused above fused, or the reason for none."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from ..records import Fusion, FusionMap
from .sheet import MARGIN, SMALL, WIDTH, Sheet, decimals
from .style import Drawing, Theme

MAX_SITES = 40
SITE_HEIGHT = 0.36  # inches
NAMES, BARS = 2.85, (3.0, 4.75)
MS, SPEED = 5.9, WIDTH - MARGIN  # where columns end
TOP = 0.46
BAR = 0.1
TINY = 6.8
NOTE, LINE = 110, 0.18  # characters of a line of notes, and its inches


def draw(fusion_map: FusionMap, *, dark: bool = False) -> Drawing:
    """Two bars per site: grey unfused, coloured fused; or the reason why it is unfused."""
    sites = fusion_map.fusions[:MAX_SITES]
    left_out = len(fusion_map.fusions) - len(sites)
    notes = [line for note in fusion_map.notes for line in wrap(note, NOTE)]
    below = TOP + SITE_HEIGHT * (len(sites) + bool(left_out))
    title = f"{fusion_map.workload} on {fusion_map.machine}: {fusion_map.summary}"
    sheet = Sheet(title, height=below + LINE * len(notes), dark=dark)
    _draw_head(sheet)
    times = [ms for site in sites for ms in (site.apart_ms, site.fused_ms) if ms]
    longest = max(times, default=1.0)
    for index, site in enumerate(sites):
        _draw_site(sheet, site, TOP + SITE_HEIGHT * index, longest)
    if left_out:
        sheet.hint(MARGIN, TOP + SITE_HEIGHT * len(sites), f"{left_out} more left out")
    for index, line in enumerate(notes):
        sheet.hint(MARGIN, below + LINE * index, line)
    return sheet.drawing


def tooltip(fusion: Fusion) -> str:
    """The tooltip of fused or unfused layers."""
    runs = f" · {fusion.runs}" if fusion.runs else ""
    lines = [" + ".join(fusion.layers), f"{fusion.pattern}{runs}"]
    if fusion.apart_ms is not None and fusion.fused_ms is not None:
        lines.append(f"{fusion.apart_ms:.4g} ms apart → {fusion.fused_ms:.4g} ms fused")
    return "\n".join([*lines, *([fusion.reason] if fusion.reason else [])])


def _draw_head(sheet: Sheet) -> None:
    sheet.hint(MARGIN, 0.1, "places, in the order of the model")
    sheet.hint(BARS[0], 0.1, "apart above, as one below")
    sheet.hint(MS, 0.1, "ms apart → one", side="right")
    sheet.hint(SPEED, 0.1, "times as fast", side="right")
    sheet.line((MARGIN, WIDTH - MARGIN), 0.22, sheet.theme.faint, 0.6)


def _draw_site(sheet: Sheet, site: Fusion, y: float, longest: float) -> None:
    _write_end(sheet, y - 0.07, _names(site))
    _write_begin(sheet, y + 0.09, f"{site.pattern} · {site.runs}" if site.runs else site.pattern)
    _draw_bars(sheet, site, y, longest)
    if site.apart_ms is None or site.fused_ms is None:
        sheet.fit(BARS[0], y, site.reason or "not timed", SPEED - BARS[0], size=SMALL)
        return
    digits = decimals(longest)
    sheet.write(MS, y, f"{site.apart_ms:.{digits}f} → {site.fused_ms:.{digits}f}", side="right")
    speed = site.speedup or 1.0
    text = f"{speed:.2f} ×" + (" slower" if speed < 0.995 else "")
    weight = "bold" if site.standing == "fused" else "normal"
    sheet.write(SPEED, y, text, side="right", colour=_tone(site, sheet.theme), weight=weight)


def _write_end(sheet: Sheet, y: float, text: str) -> None:
    """Write text without its beginning if it is too long: layer paths differ at their ends."""
    mark = sheet.write(MARGIN, y, text)
    while sheet.width_of(mark) > NAMES - MARGIN and len(text) > 6:
        text = text[max(1, len(text) // 24) :]
        mark.set_text(f"…{text}")


def _write_begin(sheet: Sheet, y: float, text: str) -> None:
    """Write small text without its end if it is too long."""
    mark = sheet.write(MARGIN, y, text, size=TINY, colour=sheet.theme.soft)
    while sheet.width_of(mark) > NAMES - MARGIN and len(text) > 6:
        text = text[: -max(1, len(text) // 24)]
        mark.set_text(f"{text}…")


def _draw_bars(sheet: Sheet, site: Fusion, y: float, longest: float) -> None:
    theme, scale = sheet.theme, (BARS[1] - BARS[0]) / longest
    for ms, colour, top in (
        (site.apart_ms, theme.faint, y - BAR - 0.01),
        (site.fused_ms, _tone(site, theme), y + 0.01),
    ):
        if ms is None or site.fused_ms is None:
            continue
        # a fusion that is not in effect is only outlined
        is_idle = site.standing != "fused" and colour != theme.faint
        face = "none" if is_idle else colour
        look: dict[str, Any] = {"facecolor": face, "edgecolor": colour, "linewidth": 0.8}
        sheet.axes.box((BARS[0], top), (ms * scale, BAR), tooltip=tooltip(site), **look)


def _tone(site: Fusion, theme: Theme) -> str:
    if site.standing == "slower" or (site.speedup or 1.0) < 0.995:
        return theme.bad
    return theme.good if site.standing == "fused" else theme.soft


def _names(site: Fusion) -> str:
    """The layers without the prefix of the first: 'layer1.0.conv1 + bn1 + relu'."""
    under, _, _ = site.place.rpartition(".")
    shared = f"{under}." if under else ""
    return " + ".join([site.place, *(layer.removeprefix(shared) for layer in site.layers[1:])])
