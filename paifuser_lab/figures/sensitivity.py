"""Sensitivity: a heat map of layers by format, and predicted against measured scores."""

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
MAX_LAYERS = 40
CELLS, CELLS_ALONE, SCATTER = 1.65, 3.2, 5.15  # inches from the left
WIDEST_CELL = 0.8
TOP, BAR = 1.0, 2.2
UNTOLD = "≈ 0"  # as the widget writes it
LEGEND_LINE = 0.17  # inches, under the scatter plot


class Columns(NamedTuple):
    """The left end of the formats' columns, and the width of each, in inches."""

    left: float
    width: float

    def middle(self, column: int) -> float:
        """The middle of a column."""
        return self.left + self.width * (column + 0.5)


def title(sensitivity: Sensitivity) -> str:
    """The title of the figure."""
    return f"{sensitivity.workload}: what each layer loses in lower precision"


def quantity(sensitivity: Sensitivity) -> str:
    """The unit of the scores and the method."""
    unit = "rise of the loss" if sensitivity.unit == "loss" else "relative error of the output"
    is_measured = sensitivity.method == "ablation"
    return f"{unit}, {'measured' if is_measured else f'predicted by {sensitivity.method}'}"


def is_untold(score: Estimate) -> bool:
    """Whether a score cannot be told from 0: it is within its own standard error."""
    return score.error is not None and abs(score.value) <= score.error


def shown(sensitivity: Sensitivity) -> list[LayerSensitivity]:
    """The most sensitive layers, in the model's order."""
    worst = sorted(sensitivity.rows, key=lambda row: -_worst(sensitivity, row))[:MAX_LAYERS]
    return [row for row in sensitivity.rows if any(row is other for other in worst)]


def draw(sensitivity: Sensitivity, *, dark: bool = False) -> Drawing:
    """A row per layer and a column per format; beside it measured against predicted scores, if
    measured.
    """
    rows, pairs = shown(sensitivity), _pairs(sensitivity)
    left_out = len(sensitivity.rows) - len(rows)
    height = TOP + ROW * (len(rows) + bool(left_out)) + 0.1
    least = TOP + WIDTH - SCATTER + 0.5 + LEGEND_LINE * len(sensitivity.formats)
    sheet = Sheet(title(sensitivity), height=max(height, least) if pairs else height, dark=dark)
    scale = scale_of(score.value for _, _, score in _scores(sensitivity, sensitivity.method))
    columns = _columns(len(sensitivity.formats), has_pairs=bool(pairs))
    _draw_legend(sheet, sensitivity, scale, columns.left)
    for column, name in enumerate(sensitivity.formats):
        _draw_name(sheet, columns.middle(column), name, columns.width)
    for index, row in enumerate(rows):
        _draw_row(sheet, sensitivity, row, TOP + ROW * index, scale, columns)
    if left_out:
        sheet.write(
            MARGIN,
            TOP + ROW * len(rows),
            f"{left_out} that matter less left out",
            colour=sheet.theme.soft,
        )
    if pairs:
        _draw_pairs(sheet, sensitivity, pairs)
    return sheet.drawing


def _columns(count: int, *, has_pairs: bool) -> Columns:
    left, right = (CELLS, SCATTER - 0.6) if has_pairs else (CELLS_ALONE, WIDTH - MARGIN)
    return Columns(left, min(WIDEST_CELL, (right - left) / max(1, count)))


def _draw_name(sheet: Sheet, x: float, name: str, width: float) -> None:
    """Write a format over its column, one line for each part of its name."""
    size = min(SMALL, 15.5 * width)
    for line, part in enumerate(reversed(name.split("-"))):
        sheet.write(
            x, TOP - 0.2 - 0.125 * line, part, size=size, side="center", colour=sheet.theme.soft
        )


def _draw_legend(sheet: Sheet, sensitivity: Sensitivity, scale: Scale | None, left: float) -> None:
    """Draw the colour scale with powers of ten under it, and the hatch of values below it."""
    sheet.write(
        MARGIN,
        0.1,
        quantity(sensitivity) + ("; stopped early" if sensitivity.is_interrupted else ""),
        size=SMALL,
        colour=sheet.theme.soft,
    )
    if scale is None:
        sheet.write(MARGIN, 0.32, "none that is above 0", size=SMALL)
        return
    step = BAR / len(RAMP)
    for index, colour in enumerate(_ramp(sheet)):
        _cell(sheet, left + step * index, 0.32, step, 0.15, colour)
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
    scores = [score for _, _, score in _scores(sensitivity, sensitivity.method)]
    untold = f"{UNTOLD} or " if any(map(is_untold, scores)) else ""
    text = f"{untold}below {cell_text(scale.floor)}"
    sheet.write(MARGIN + 0.38, 0.32, text, size=SMALL, colour=sheet.theme.soft)


def _draw_row(
    sheet: Sheet,
    sensitivity: Sensitivity,
    row: LayerSensitivity,
    y: float,
    scale: Scale | None,
    columns: Columns,
) -> None:
    sheet.fit(MARGIN, y, row.layer, columns.left - 0.1 - MARGIN)
    for column, name in enumerate(sensitivity.formats):
        score = row.scores.get(name, {}).get(sensitivity.method)
        if score is None or math.isnan(score.value):
            sheet.write(
                columns.middle(column), y, "–", size=SMALL, side="center", colour=sheet.theme.soft
            )
        else:
            x = columns.left + columns.width * column
            _draw_score(sheet, x, y, score, scale, columns.width)


def _draw_score(
    sheet: Sheet, x: float, y: float, score: Estimate, scale: Scale | None, width: float
) -> None:
    """Draw a cell in its colour, with its number if there is room; hatched within its error."""
    text = UNTOLD if is_untold(score) else cell_text(score.value)
    step = -1 if scale is None or text == UNTOLD else scale.step(score.value)
    colours = _ramp(sheet)
    _cell(
        sheet, x, y, width - 0.015, ROW - 0.015, colours[step] if step >= 0 else "", hatch=step < 0
    )
    if width >= 0.4:
        is_ink_light = step <= 4 if colours is DARK_RAMP else step >= 6
        ink = sheet.theme.ink if step < 0 else "#ffffff" if is_ink_light else "#111111"
        sheet.write(x + width / 2, y, text, size=min(7.2, 14 * width), side="center", colour=ink)


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


def _pairs(sensitivity: Sensitivity) -> list[Pair]:
    """The scores that were both predicted and measured."""
    if sensitivity.method == "ablation":
        return []
    measured = {(layer, name): score for layer, name, score in _scores(sensitivity, "ablation")}
    return [
        (name, predicted, measured[layer, name])
        for layer, name, predicted in _scores(sensitivity, sensitivity.method)
        if (layer, name) in measured
    ]


def _draw_pairs(sheet: Sheet, sensitivity: Sensitivity, pairs: list[Pair]) -> None:
    """Draw predicted against measured scores on equal logarithmic axes; those not above 0 are
    hollow marks at the edge.
    """
    theme, side = sheet.theme, WIDTH - SCATTER - MARGIN
    scale = scale_of(score.value for _, *both in pairs for score in both) or Scale(0.1, 1.0)
    rectangle = (
        SCATTER / WIDTH,
        1 - (sheet.top + TOP - 0.1 + side) / sheet.height,
        side / WIDTH,
        side / sheet.height,
    )
    low, high = scale.floor / 1.3, scale.top * 1.2
    axes = sheet.drawing.add_axes(
        rectangle,
        facecolor=theme.paper,
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(low, high),
        zorder=1,
    )
    axes.plot([low, high], [low, high], color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)))
    colours = DARK_SERIES if theme is DARK else SERIES
    for index, name in enumerate(sensitivity.formats):
        colour, shape = colours[index % len(colours)], SHAPES[index % len(SHAPES)]
        for _, predicted, measured in [pair for pair in pairs if pair[0] == name]:
            _draw_pair(axes, predicted, measured, low, colour=colour, shape=shape)
        _draw_agreement(
            sheet,
            sensitivity,
            name,
            TOP + side + 0.4 + LEGEND_LINE * index,
            colour=colour,
            shape=shape,
        )
    _style_axes(sheet, axes, scale)


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
    sheet: Sheet, sensitivity: Sensitivity, name: str, y: float, *, colour: str, shape: str
) -> None:
    """Write a format's mark and the rank correlation of its predictions with the measurements."""
    method = next((row for row in sensitivity.methods if row.name == sensitivity.method), None)
    rank = method.agreement.get(name) if method is not None else None
    sheet.axes.plot(
        [SCATTER + 0.06], [y], marker=shape, markersize=4, color=colour, linestyle="none"
    )
    sheet.write(SCATTER + 0.18, y, name, size=SMALL)
    sheet.write(
        WIDTH - MARGIN, y, "–" if rank is None else f"ρ {rank:.2f}", size=SMALL, side="right"
    )


def _style_axes(sheet: Sheet, axes: Axes, scale: Scale) -> None:
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


def _scores(sensitivity: Sensitivity, method: str) -> list[tuple[str, str, Estimate]]:
    """The layer, format and estimate of all scores of a method."""
    return [
        (row.layer, name, row.scores[name][method])
        for row in sensitivity.rows
        for name in sensitivity.formats
        if method in row.scores.get(name, {}) and not math.isnan(row.scores[name][method].value)
    ]


def _worst(sensitivity: Sensitivity, row: LayerSensitivity) -> float:
    values = [
        row.scores[name][sensitivity.method].value
        for name in sensitivity.formats
        if sensitivity.method in row.scores.get(name, {})
    ]
    return max((value for value in values if not math.isnan(value)), default=-math.inf)
