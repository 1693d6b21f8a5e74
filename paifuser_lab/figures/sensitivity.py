"""How much each layer matters: a heat map of layers by format, and what was predicted
against what was measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..records import Estimate, LayerSensitivity, Sensitivity
from .heat_scale import DARK_RAMP, RAMP, Scale, cell_text, scale_of
from .sheet import MARGIN, ROW, SMALL, WIDTH, Sheet
from .style import DARK, Drawing

SERIES = ("#0072b2", "#c2520a", "#00795a", "#9a4f86", "#806600", "#5c6166")
DARK_SERIES = ("#56b4e9", "#ff9166", "#2bc196", "#d48fb8", "#e6c84a", "#a9afb5")
SHAPES = ("o", "s", "^", "D")
SHOWN = 40
CELLS, CELLS_ALONE, SCATTER = 1.65, 3.2, 5.15  # inches from the left
WIDEST_CELL = 0.8
TOP, BAR = 1.0, 2.2
BY_LINE = 0.17  # of what stands under the scatter


class Columns(NamedTuple):
    """Where the formats' columns begin, and how wide each is."""

    left: float
    width: float

    def middle(self, place: int) -> float:
        """The middle of a column."""
        return self.left + self.width * (place + 0.5)


def title(found: Sensitivity) -> str:
    """What is shown, of which model."""
    return f"{found.workload}: what each layer costs in lower precision"


def quantity(found: Sensitivity) -> str:
    """What the numbers are, and how they were found."""
    named = "rise of the loss" if found.unit == "loss" else "relative error of the output"
    return (
        f"{named}, {'measured' if found.method == 'ablation' else f'predicted by {found.method}'}"
    )


def shown(found: Sensitivity) -> list[LayerSensitivity]:
    """The layers that matter most, in the model's order."""
    judged = sorted(found.rows, key=lambda row: -_worst(found, row))[:SHOWN]
    return [row for row in found.rows if any(row is one for one in judged)]


def draw(found: Sensitivity, *, dark: bool = False) -> Drawing:
    """A line a layer, a column a format; beside it the judgement by measurement, where there is
    one.
    """
    rows, pairs = shown(found), _pairs(found)
    left_out = len(found.rows) - len(rows)
    height = TOP + ROW * (len(rows) + bool(left_out)) + 0.1
    least = TOP + WIDTH - SCATTER + 0.5 + BY_LINE * len(found.formats)
    sheet = Sheet(title(found), height=max(height, least) if pairs else height, dark=dark)
    scale = scale_of(one.value for _, _, one in _scores(found, found.method))
    columns = _columns(len(found.formats), has_pairs=bool(pairs))
    _draw_legend(sheet, found, scale, columns.left)
    for column, name in enumerate(found.formats):
        _draw_name(sheet, columns.middle(column), name, columns.width)
    for place, row in enumerate(rows):
        _draw_row(sheet, found, row, TOP + ROW * place, scale, columns)
    if left_out:
        sheet.write(
            MARGIN,
            TOP + ROW * len(rows),
            f"{left_out} that matter less left out",
            colour=sheet.theme.soft,
        )
    if pairs:
        _draw_pairs(sheet, found, pairs)
    return sheet.drawing


def _columns(count: int, *, has_pairs: bool) -> Columns:
    left, right = (CELLS, SCATTER - 0.6) if has_pairs else (CELLS_ALONE, WIDTH - MARGIN)
    return Columns(left, min(WIDEST_CELL, (right - left) / max(1, count)))


def _draw_name(sheet: Sheet, x: float, name: str, width: float) -> None:
    """A format over its column, its parts under each other."""
    size = min(SMALL, 15.5 * width)
    for place, part in enumerate(reversed(name.split("-"))):
        sheet.write(
            x, TOP - 0.2 - 0.125 * place, part, size=size, side="center", colour=sheet.theme.soft
        )


def _draw_legend(sheet: Sheet, found: Sensitivity, scale: Scale | None, left: float) -> None:
    """The scale in its steps, with powers of ten under it, and what is below it."""
    sheet.write(
        MARGIN,
        0.1,
        quantity(found) + ("; stopped early" if found.is_interrupted else ""),
        size=SMALL,
        colour=sheet.theme.soft,
    )
    if scale is None:
        sheet.write(MARGIN, 0.32, "none that is above 0", size=SMALL)
        return
    step = BAR / len(RAMP)
    for place, colour in enumerate(_ramp(sheet)):
        _cell(sheet, left + step * place, 0.32, step, 0.15, colour)
    for tick in scale.tens:
        sheet.write(
            left + BAR * scale.share(tick),
            0.5,
            cell_text(tick),
            size=SMALL,
            side="center",
            colour=sheet.theme.soft,
        )
    _cell(sheet, MARGIN, 0.32, 0.3, 0.15, "", hatch=True)
    sheet.write(
        MARGIN + 0.38, 0.32, f"below {cell_text(scale.floor)}", size=SMALL, colour=sheet.theme.soft
    )


def _draw_row(
    sheet: Sheet,
    found: Sensitivity,
    row: LayerSensitivity,
    y: float,
    scale: Scale | None,
    columns: Columns,
) -> None:
    sheet.fit(MARGIN, y, row.layer, columns.left - 0.1 - MARGIN)
    for place, name in enumerate(found.formats):
        score = row.scores.get(name, {}).get(found.method)
        if score is None or math.isnan(score.value):
            sheet.write(
                columns.middle(place), y, "–", size=SMALL, side="center", colour=sheet.theme.soft
            )
        else:
            _draw_score(
                sheet, columns.left + columns.width * place, y, score.value, scale, columns.width
            )


def _draw_score(
    sheet: Sheet, x: float, y: float, value: float, scale: Scale | None, width: float
) -> None:
    """A cell in its colour, with its number where there is room."""
    step = -1 if scale is None else scale.step(value)
    colours = _ramp(sheet)
    _cell(
        sheet, x, y, width - 0.015, ROW - 0.015, colours[step] if step >= 0 else "", hatch=step < 0
    )
    if width >= 0.4:
        is_ink_light = step <= 4 if colours is DARK_RAMP else step >= 6
        ink = sheet.theme.ink if step < 0 else "#ffffff" if is_ink_light else "#111111"
        sheet.write(
            x + width / 2, y, cell_text(value), size=min(7.2, 14 * width), side="center", colour=ink
        )


def _ramp(sheet: Sheet) -> tuple[str, ...]:
    return DARK_RAMP if sheet.theme is DARK else RAMP


def _cell(
    sheet: Sheet,
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    *,
    hatch: bool = False,
) -> None:
    sheet.axes.add_patch(
        Rectangle(
            (x, y - height / 2),
            width,
            height,
            linewidth=0,
            facecolor=colour or sheet.theme.paper,
            edgecolor=to_rgba(sheet.theme.faint, 0.4),
            hatch="////" if hatch else None,
        )
    )


Pair = tuple[str, Estimate, Estimate]


def _pairs(found: Sensitivity) -> list[Pair]:
    """What was both predicted and measured."""
    if found.method == "ablation":
        return []
    measured = {(layer, name): one for layer, name, one in _scores(found, "ablation")}
    return [
        (name, one, measured[layer, name])
        for layer, name, one in _scores(found, found.method)
        if (layer, name) in measured
    ]


def _draw_pairs(sheet: Sheet, found: Sensitivity, pairs: list[Pair]) -> None:
    """Predicted against measured on equal logarithmic axes; what is not above 0 lies hollow at the
    edge.
    """
    theme, side = sheet.theme, WIDTH - SCATTER - MARGIN
    scale = scale_of(one.value for _, *both in pairs for one in both) or Scale(0.1, 1.0)
    place = (
        SCATTER / WIDTH,
        1 - (sheet.top + TOP - 0.1 + side) / sheet.height,
        side / WIDTH,
        side / sheet.height,
    )
    low, high = scale.floor / 1.3, scale.top * 1.2
    axes = sheet.drawing.add_axes(
        place,
        facecolor=theme.paper,
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(low, high),
        zorder=1,
    )
    axes.plot([low, high], [low, high], color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)))
    colours = DARK_SERIES if theme is DARK else SERIES
    for place_of, name in enumerate(found.formats):
        colour, shape = colours[place_of % len(colours)], SHAPES[place_of % len(SHAPES)]
        for _, predicted, measured in [one for one in pairs if one[0] == name]:
            _draw_pair(axes, predicted, measured, low, colour=colour, shape=shape)
        _draw_agreement(
            sheet, found, name, TOP + side + 0.4 + BY_LINE * place_of, colour=colour, shape=shape
        )
    _dress(sheet, axes, scale)


def _draw_pair(
    axes: Axes, predicted: Estimate, measured: Estimate, low: float, *, colour: str, shape: str
) -> None:
    is_below = min(predicted.value, measured.value) < low
    x, y = max(predicted.value, low), max(measured.value, low)
    axes.errorbar(
        x, y, xerr=predicted.error, yerr=measured.error, color=colour, elinewidth=0.6, alpha=0.6
    )
    axes.plot([x], [y], marker=shape, markersize=3.4, color=colour, alpha=0.85, clip_on=False,
              markerfacecolor="none" if is_below else colour)  # fmt: skip


def _draw_agreement(
    sheet: Sheet, found: Sensitivity, name: str, y: float, *, colour: str, shape: str
) -> None:
    """A format's mark and how far the prediction's order agrees with the measurement's."""
    judged = next((one for one in found.methods if one.name == found.method), None)
    rank = judged.agreement.get(name) if judged is not None else None
    sheet.axes.plot(
        [SCATTER + 0.06], [y], marker=shape, markersize=4, color=colour, linestyle="none"
    )
    sheet.write(SCATTER + 0.18, y, name, size=SMALL)
    sheet.write(
        WIDTH - MARGIN, y, "–" if rank is None else f"ρ {rank:.2f}", size=SMALL, side="right"
    )


def _dress(sheet: Sheet, axes: Axes, scale: Scale) -> None:
    for axis, name in ((axes.xaxis, "predicted"), (axes.yaxis, "measured")):
        axis.set_major_locator(FixedLocator(scale.tens))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: cell_text(value)))
        axis.set_label_text(name, color=sheet.theme.soft, fontsize=SMALL)
    axes.tick_params(colors=sheet.theme.ink, labelsize=SMALL, length=0)
    axes.grid(color=sheet.theme.faint, alpha=0.2, linewidth=0.6)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("bottom", "left"))
        spine.set_color(sheet.theme.faint)


def _scores(found: Sensitivity, method: str) -> list[tuple[str, str, Estimate]]:
    """Layer, format and estimate of all that a method judged."""
    return [
        (row.layer, name, row.scores[name][method])
        for row in found.rows
        for name in found.formats
        if method in row.scores.get(name, {}) and not math.isnan(row.scores[name][method].value)
    ]


def _worst(found: Sensitivity, row: LayerSensitivity) -> float:
    values = [
        row.scores[name][found.method].value
        for name in found.formats
        if found.method in row.scores.get(name, {})
    ]
    return max((value for value in values if not math.isnan(value)), default=-math.inf)
