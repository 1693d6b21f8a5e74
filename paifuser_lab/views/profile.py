"""Where a model's time goes: its parts in execution order, its costliest layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..records import LayerProfile, Profile
from .sheet import BOUNDS, MARGIN, ROW, SMALL, WIDTH, Sheet, decimals
from .style import Drawing

MAX_LAYERS = 12
MAX_PARTS = 32
LARGE = 0.34  # a part above this share of the time is split into its layers
NAMES, BARS = 2.3, (2.45, 4.5)
MS, SHARE, BOUND, ROOF = 5.05, 5.6, 5.83, 6.9  # right ends of columns; left of BOUND


class Part(NamedTuple):
    """A layer with its children, or a container's own operators; `ms` by what binds them."""

    layer: str
    is_whole: bool
    ms: dict[str | None, float]

    @property
    def total_ms(self) -> float:
        return sum(self.ms.values())


def draw(profile: Profile, *, dark: bool = False) -> Drawing:
    """A strip of all parts on top, the costliest layers below, the others summed in one line."""
    rows = [row for row in profile.costliest(MAX_LAYERS) if row.self_ms > 0]
    left = [row for row in profile if row not in rows and row.self_ms > 0]
    sheet = Sheet(profile.title, height=1.32 + ROW * (len(rows) + bool(left)), dark=dark)
    _draw_strip(sheet, profile, y=0.16)
    _draw_legend(sheet, profile, y=0.66)
    _draw_head(sheet, y=1.02)
    widest = max((max(row.self_ms, row.self_spread_ms[1]) for row in rows), default=1.0)
    for index, row in enumerate(rows):
        _draw_row(
            sheet, profile, row, 1.26 + ROW * index, widest=widest, places=decimals(rows[0].self_ms)
        )
    if left:
        _draw_rest(sheet, profile, left, 1.26 + ROW * len(rows), places=decimals(rows[0].self_ms))
    return sheet.drawing


def tooltip(row: LayerProfile, profile: Profile) -> str:
    """The tooltip of a layer."""
    lines = [
        f"{row.layer or profile.workload} ({row.kind})",
        f"{row.self_ms:.4g} ms itself, {row.self_ms / (profile.total_ms or 1.0):.1%} of the time",
    ]
    if row.gflops:
        lines.append(f"{row.gflops:.3g} GFLOP/s")
    if row.gbs:
        lines.append(f"{row.gbs:.3g} GB/s")
    if row.intensity:
        lines.append(f"{row.intensity:.3g} FLOP/byte")
    if row.verdict:
        share = row.roof_share if row.verdict != "overhead" else None
        lines.append(f"bound by {row.verdict}" + (f", {share:.0%} of the roof" if share else ""))
    return "\n".join(lines)


def parts(profile: Profile) -> list[Part]:
    """The model's parts in execution order: its children, large ones split into theirs."""
    names = [("", False), *((child.layer, True) for child in profile.children(""))]
    while True:
        large = [
            name
            for name, whole in names
            if whole and profile.children(name) and profile[name].share > LARGE
        ]
        fitting = [name for name in large if len(names) + len(profile.children(name)) <= MAX_PARTS]
        if not fitting:
            break
        name = max(fitting, key=lambda layer: profile[layer].share)
        index = names.index((name, True))
        names[index : index + 1] = [
            (name, False),
            *((child.layer, True) for child in profile.children(name)),
        ]
    pieces = [
        Part(
            name,
            whole,
            _by_bound((row for _, row in profile.walk(name)) if whole else [profile[name]]),
        )
        for name, whole in names
    ]
    return [part for part in pieces if part.total_ms > 0]


def _by_bound(rows: Iterable[LayerProfile]) -> dict[str | None, float]:
    sums: dict[str | None, float] = {}
    for row in rows:
        sums[row.verdict] = sums.get(row.verdict, 0.0) + row.self_ms
    return sums


def _draw_strip(sheet: Sheet, profile: Profile, y: float) -> None:
    """Draw the whole model as one bar of its parts, coloured by what binds them."""
    pieces = parts(profile)
    scale = (WIDTH - 2 * MARGIN) / (sum(part.total_ms for part in pieces) or 1.0)
    x = MARGIN
    for part in pieces:
        _draw_part(sheet, profile, part, (x, y), scale)
        if part.is_whole:
            _label(sheet, x, y + 0.22, part.layer, part.total_ms * scale)
        x += part.total_ms * scale


def _draw_part(
    sheet: Sheet, profile: Profile, part: Part, at: tuple[float, float], scale: float
) -> None:
    (x, y), width = at, part.total_ms * scale
    gap = min(0.015, width / 4)
    share = part.total_ms / (profile.total_ms or 1.0)
    text = (
        f"{part.layer or profile.workload}{'' if part.is_whole else ' itself'}: "
        f"{part.total_ms:.4g} ms, {share:.1%} of the time"
    )
    for bound in (*BOUNDS, None):
        ms = part.ms.get(bound, 0.0)
        if ms > 0:
            piece = ms / part.total_ms * (width - gap)
            bound_text = f"{ms:.4g} ms bound by {bound or 'nothing known'}"
            sheet.bar(x, y, piece, 0.24, bound, f"{text}\n{bound_text}")
            x += piece


def _label(sheet: Sheet, x: float, y: float, layer: str, width: float) -> None:
    """Write a part's path under it, or the end of the path, or nothing if there is no room."""
    for name in (layer, layer.rpartition(".")[2]):
        mark = sheet.write(x + width / 2, y, name, size=SMALL, side="center")
        if sheet.width_of(mark) <= width - 0.06:
            return
        mark.remove()


def _draw_legend(sheet: Sheet, profile: Profile, y: float) -> None:
    """Draw the legend of colours with the share of time of each bound."""
    by_bound = _by_bound(profile)
    x = MARGIN + sheet.width_of(sheet.hint(MARGIN, y, "bound by")) + 0.12
    for bound in BOUNDS:
        sheet.bar(x, y, 0.22, 0.12, bound)
        share = by_bound.get(bound, 0.0) / (profile.total_ms or 1.0)
        mark = sheet.write(x + 0.28, y, f"{bound} {share:.0%}", size=SMALL)
        x += 0.28 + sheet.width_of(mark) + 0.2
    sheet.hint(WIDTH - MARGIN, y, "above: front to back, as it runs", side="right")


def _draw_head(sheet: Sheet, y: float) -> None:
    sheet.hint(MARGIN, y, "costliest layers")
    sheet.hint(BARS[0], y, "self time; line: middle half")
    sheet.hint(MS, y, "ms", side="right")
    sheet.hint(SHARE, y, "share", side="right")
    sheet.hint(BOUND, y, "bound by")
    sheet.hint(ROOF, y, "of roof", side="right")
    sheet.line((MARGIN, WIDTH - MARGIN), y + 0.1, sheet.theme.faint, 0.6)


def _draw_row(
    sheet: Sheet, profile: Profile, row: LayerProfile, y: float, *, widest: float, places: int
) -> None:
    theme, start, scale = sheet.theme, BARS[0], (BARS[1] - BARS[0]) / (widest or 1.0)
    sheet.fit(MARGIN, y, row.layer or f"{profile.workload} (itself)", NAMES - MARGIN)
    sheet.bar(start, y, row.self_ms * scale, 0.14, row.verdict, tooltip(row, profile))
    low, high = row.self_spread_ms
    if high > low:
        sheet.line((start + low * scale, start + high * scale), y, theme.ink, 1.1)
    sheet.write(MS, y, f"{row.self_ms:.{places}f}", side="right")
    sheet.write(SHARE, y, f"{row.self_ms / (profile.total_ms or 1.0):.1%}", side="right")
    if row.verdict:
        sheet.dot(BOUND + 0.04, y, row.verdict)
        sheet.write(BOUND + 0.13, y, row.verdict)
    if row.verdict != "overhead" and row.roof_share is not None:
        sheet.write(ROOF, y, f"{row.roof_share:.0%}", side="right")


def _draw_rest(
    sheet: Sheet, profile: Profile, left: list[LayerProfile], y: float, *, places: int
) -> None:
    """Write the sum of the layers not shown, without a bar, which would dwarf the others."""
    ms, soft = sum(row.self_ms for row in left), sheet.theme.soft
    sheet.write(MARGIN, y, f"{len(left)} more, together", colour=soft)
    sheet.write(MS, y, f"{ms:.{places}f}", side="right", colour=soft)
    sheet.write(SHARE, y, f"{ms / (profile.total_ms or 1.0):.1%}", side="right", colour=soft)
