"""Sensitivity: a heat map of layers by format, and predicted against measured scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from matplotlib.colors import to_rgba
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..records import Estimate, LayerSensitivity, Sensitivity
from ..records.text import or_dash
from .heat_scale import RAMP, Scale, cell_text, ink_on, ramp_of, scale_of
from .sheet import MARGIN, ROW, SMALL, WIDTH, Sheet
from .style import DARK, Drawing, Plot

SERIES = ("#0072b2", "#c2520a", "#00795a", "#9a4f86", "#806600", "#5c6166")
DARK_SERIES = ("#56b4e9", "#ff9166", "#2bc196", "#d48fb8", "#e6c84a", "#a9afb5")
SHAPES = ("o", "s", "^", "D")
MAX_LAYERS = 40
CELLS, CELLS_ALONE, SCATTER = 1.65, 3.2, 5.15  # inches from the left
WIDEST_CELL = 0.8
TOP, BAR = 1.0, 2.2
UNTOLD = "≈ 0"  # as the widget writes it
LEGEND_LINE = 0.17  # inches, under the scatter plot


class Heat(NamedTuple):
    """The heat map: its sheet, its colours, and its columns of formats in inches."""

    sheet: Sheet
    sensitivity: Sensitivity
    scale: Scale | None
    left: float
    width: float

    def middle(self, column: int) -> float:
        """The middle of a column."""
        return self.left + self.width * (column + 0.5)

    def cell(self, x: float, y: float, width: float, height: float, colour: str = "") -> None:
        """A cell in its colour, or hatched."""
        theme = self.sheet.theme
        self.sheet.axes.box(
            (x, y - height / 2),
            (width, height),
            linewidth=0,
            facecolor=colour or theme.paper,
            edgecolor=to_rgba(theme.faint, 0.4),
            hatch=None if colour else "////",
        )


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
    """A row per layer, a column per format; beside it measured against predicted scores."""
    rows, pairs = shown(sensitivity), _pairs(sensitivity)
    left_out = len(sensitivity.rows) - len(rows)
    height = TOP + ROW * (len(rows) + bool(left_out)) + 0.1
    least = TOP + WIDTH - SCATTER + 0.5 + LEGEND_LINE * len(sensitivity.formats)
    sheet = Sheet(title(sensitivity), height=max(height, least) if pairs else height, dark=dark)
    scale = scale_of(score.value for _, _, score in _scores(sensitivity, sensitivity.method))
    left, right = (CELLS, SCATTER - 0.6) if pairs else (CELLS_ALONE, WIDTH - MARGIN)
    width = min(WIDEST_CELL, (right - left) / max(1, len(sensitivity.formats)))
    heat = Heat(sheet, sensitivity, scale, left, width)
    _draw_legend(heat)
    for column, name in enumerate(sensitivity.formats):
        _draw_name(heat, column, name)
    for index, row in enumerate(rows):
        _draw_row(heat, row, TOP + ROW * index)
    if left_out:
        sheet.hint(MARGIN, TOP + ROW * len(rows), f"{left_out} that matter less left out")
    if pairs:
        _draw_pairs(sheet, sensitivity, pairs)
    return sheet.drawing


def _draw_name(heat: Heat, column: int, name: str) -> None:
    """Write a format over its column, one line for each part of its name."""
    look: dict[str, Any] = {"size": min(SMALL, 15.5 * heat.width), "colour": heat.sheet.theme.soft}
    for line, part in enumerate(reversed(name.split("-"))):
        y = TOP - 0.2 - 0.125 * line
        heat.sheet.write(heat.middle(column), y, part, side="center", **look)


def _draw_legend(heat: Heat) -> None:
    """Draw the colour scale with powers of ten under it, and the hatch of values below it."""
    sheet, sensitivity, scale = heat.sheet, heat.sensitivity, heat.scale
    stopped = "; stopped early" if sensitivity.is_interrupted else ""
    sheet.hint(MARGIN, 0.1, quantity(sensitivity) + stopped)
    if scale is None:
        sheet.write(MARGIN, 0.32, "none that is above 0", size=SMALL)
        return
    step = BAR / len(RAMP)
    for index, colour in enumerate(ramp_of(sheet.theme)):
        heat.cell(heat.left + step * index, 0.32, step, 0.15, colour)
    for tick in scale.tens:
        sheet.hint(heat.left + BAR * scale.share(tick), 0.5, cell_text(tick), side="center")
    heat.cell(MARGIN, 0.32, 0.3, 0.15)
    scores = [score for _, _, score in _scores(sensitivity, sensitivity.method)]
    untold = f"{UNTOLD} or " if any(map(is_untold, scores)) else ""
    sheet.hint(MARGIN + 0.38, 0.32, f"{untold}below {cell_text(scale.floor)}")


def _draw_row(heat: Heat, row: LayerSensitivity, y: float) -> None:
    """A layer's scores, each with its number if there is room; hatched within its error."""
    sheet, width = heat.sheet, heat.width
    sheet.fit(MARGIN, y, row.layer, heat.left - 0.1 - MARGIN)
    for column, name in enumerate(heat.sensitivity.formats):
        score = row.scores.get(name, {}).get(heat.sensitivity.method)
        if score is None or math.isnan(score.value):
            sheet.hint(heat.middle(column), y, "–", side="center")
            continue
        text = UNTOLD if is_untold(score) else cell_text(score.value)
        step = heat.scale.step(score.value) if heat.scale and text != UNTOLD else -1
        colour = ramp_of(sheet.theme)[step] if step >= 0 else ""
        heat.cell(heat.left + width * column, y, width - 0.015, ROW - 0.015, colour)
        if width >= 0.4:
            look: dict[str, Any] = {
                "size": min(7.2, 14 * width),
                "colour": ink_on(step, sheet.theme),
            }
            sheet.write(heat.middle(column), y, text, side="center", **look)


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
    """Predicted against measured scores; those not above 0 are hollow marks at the edge."""
    theme, side = sheet.theme, WIDTH - SCATTER - MARGIN
    scale = scale_of(score.value for _, *both in pairs for score in both) or Scale(0.1, 1.0)
    rectangle = (
        SCATTER / WIDTH,
        1 - (sheet.top + TOP - 0.1 + side) / sheet.height,
        side / WIDTH,
        side / sheet.height,
    )
    low, high = scale.floor / 1.3, scale.top * 1.2
    ends: dict[str, Any] = {"xlim": (low, high), "ylim": (low, high)}
    axes = sheet.drawing.add_plot(rectangle, xscale="log", yscale="log", zorder=1, **ends)
    axes.plot([low, high], [low, high], color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)))
    colours = DARK_SERIES if theme is DARK else SERIES
    for index, name in enumerate(sensitivity.formats):
        colour, shape = colours[index % len(colours)], SHAPES[index % len(SHAPES)]
        for _, predicted, measured in [pair for pair in pairs if pair[0] == name]:
            _draw_pair(axes, predicted, measured, low, colour=colour, shape=shape)
        y = TOP + side + 0.4 + LEGEND_LINE * index
        _draw_agreement(sheet, sensitivity, name, y, colour=colour, shape=shape)
    _style_axes(sheet, axes, scale)


def _draw_pair(
    axes: Plot, predicted: Estimate, measured: Estimate, low: float, *, colour: str, shape: str
) -> None:
    is_below = min(predicted.value, measured.value) < low
    x, y = max(predicted.value, low), max(measured.value, low)
    errors: dict[str, Any] = {"xerr": predicted.error, "yerr": measured.error}
    axes.errorbar(x, y, **errors, color=colour, elinewidth=0.6, alpha=0.6)
    look: dict[str, Any] = {"marker": shape, "markersize": 3.4, "alpha": 0.85, "clip_on": False}
    axes.mark((x, y), colour, is_hollow=is_below, **look)


def _draw_agreement(
    sheet: Sheet, sensitivity: Sensitivity, name: str, y: float, *, colour: str, shape: str
) -> None:
    """Write a format's mark and the rank correlation of its predictions with the measurements."""
    method = next((row for row in sensitivity.methods if row.name == sensitivity.method), None)
    rank = method.agreement.get(name) if method is not None else None
    sheet.axes.mark((SCATTER + 0.06, y), colour, marker=shape, markersize=4)
    sheet.write(SCATTER + 0.18, y, name, size=SMALL)
    sheet.write(WIDTH - MARGIN, y, or_dash(rank, "ρ {:.2f}"), size=SMALL, side="right")


def _style_axes(sheet: Sheet, axes: Plot, scale: Scale) -> None:
    for axis, name in ((axes.xaxis, "predicted"), (axes.yaxis, "measured")):
        axis.set_major_locator(FixedLocator(scale.tens))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: cell_text(value)))
        axis.set_label_text(name, color=sheet.theme.soft, fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.show_grid()
    axes.spines["left"].set_visible(True)


def _scores(sensitivity: Sensitivity, method: str) -> list[tuple[str, str, Estimate]]:
    """The layer, format and estimate of all scores of a method."""
    return [
        (row.layer, name, row.scores[name][method])
        for row in sensitivity.rows
        for name in sensitivity.formats
        if method in row.scores.get(name, {}) and not math.isnan(row.scores[name][method].value)
    ]


def _worst(sensitivity: Sensitivity, row: LayerSensitivity) -> float:
    one = sensitivity.model_copy(update={"rows": (row,)})
    scores = _scores(one, sensitivity.method)
    return max((score.value for _, _, score in scores), default=-math.inf)
