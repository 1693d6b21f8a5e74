"""Sensitivity: a heat map of layers by format, and predicted against measured scores."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..records import Estimate, LayerSensitivity, Sensitivity
from .heat_scale import Scale, cell_text, estimate_text, heat_panel, scale_of, scale_panel
from .picture import Axis, Dots, Key, Line, Panel, Picture, Shape, Tips, Values

SHAPES: tuple[Shape, ...] = ("disc", "square", "up", "diamond")
MAX_LAYERS = 40
UNTOLD = "≈ 0"  # as the widget writes it


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
    worst: dict[str, float] = {}
    for (layer, _), score in _scores(sensitivity, sensitivity.method).items():
        worst[layer] = max(score.value, worst.get(layer, -math.inf))
    rows = sorted(sensitivity.rows, key=lambda row: -worst.get(row.layer, -math.inf))
    chosen = {row.layer for row in rows[:MAX_LAYERS]}
    return [row for row in sensitivity.rows if row.layer in chosen]


def picture(sensitivity: Sensitivity) -> Picture:
    """A row per layer, a column per format; below it measured against predicted scores."""
    rows = shown(sensitivity)
    left_out = len(sensitivity.rows) - len(rows)
    scores = [[row.scores.get(name, {}).get(sensitivity.method) for name in sensitivity.formats]
              for row in rows]  # fmt: skip
    scale = scale_of(score.value for score in _scores(sensitivity, sensitivity.method).values())
    heat = heat_panel(
        [row.layer for row in rows],
        sensitivity.formats,
        [[_value(score) for score in row] for row in scores],
        scale,
        [[_text(score) for score in row] for row in scores],
    )
    is_vague = any(is_untold(score) for row in scores for score in row if score is not None)
    below = f"below {cell_text(scale.floor)}" if scale else "not above 0"
    about = [
        ("without a colour", f"{'≈ 0 or ' if is_vague else ''}{below}"),
        ("stopped early", "what was found until then") if sensitivity.is_interrupted else None,
        ("left out", f"{left_out} layers that matter less") if left_out else None,
    ]
    colours = scale_panel(scale, quantity(sensitivity)) if scale else None
    against = agreement(sensitivity)
    return Picture(
        title(sensitivity),
        "what each layer loses in each format",
        (*([(colours,)] if colours else []), (heat,), *against.rows),
        legend=against.legend,
        items=tuple(item for item in about if item),
    )


def _value(score: Estimate | None) -> float:
    """What is coloured; NaN where nothing is known or it cannot be told from 0."""
    return math.nan if score is None or is_untold(score) else score.value


def _text(score: Estimate | None) -> str:
    if score is None or math.isnan(score.value):
        return "–"
    return UNTOLD if is_untold(score) else cell_text(score.value)


class Pair(NamedTuple):
    """A score that was both predicted and measured."""

    row: LayerSensitivity
    name: str  # of the format
    predicted: Estimate
    measured: Estimate


def _pairs(sensitivity: Sensitivity) -> list[Pair]:
    """All pairs, by format."""
    if sensitivity.method == "ablation":
        return []
    measured = _scores(sensitivity, "ablation")
    predicted = _scores(sensitivity, sensitivity.method)
    return [
        Pair(row, name, predicted[key], measured[key])
        for name in sensitivity.formats
        for row in sensitivity.rows
        if (key := (row.layer, name)) in predicted and key in measured
    ]


def agreement(sensitivity: Sensitivity) -> Picture:
    """Predicted against measured scores, or how they are measured."""
    pairs = _pairs(sensitivity)
    title = "Predicted against measured"
    if not pairs:
        text = (
            "Each cell was measured by itself; there is no prediction to hold against it."
            if sensitivity.method == "ablation"
            else "Not measured: the quality of the prediction is not known yet. This measures it, "
            "one layer and format at a time: "
            f'lab.sensitivity(work, methods=("{sensitivity.method}", "ablation"))'
        )
        return Picture(title, "", (), sentence=text)
    panel, count = _scatter(sensitivity, pairs)
    ranks = _ranks(sensitivity)
    below = (
        f" Rings at the edge: {count} of {len(pairs)} are negative, 0 or below the scale."
        if count
        else ""
    )
    known = ", ".join(f"{name} {rank}" for name, rank in ranks.items()) or "not known"
    return Picture(
        title,
        f"predicted against measured, {len(pairs)} layers and formats; rank agreement {known}",
        ((panel,),),
        note="After each format: the rank correlation of prediction and measurement (1: the same "
        f"order); the line is equality.{below}",
        legend=tuple(
            Key(_tone(index), f"{name} {ranks.get(name, '–')}", _shape(index))
            for index, name in enumerate(sensitivity.formats)
        ),
    )


def _scatter(sensitivity: Sensitivity, pairs: list[Pair]) -> tuple[Panel, int]:
    """Both axes have one scale; dots that are not on it are rings at the edge, and counted."""
    values = [score.value for pair in pairs for score in (pair.predicted, pair.measured)]
    scale = scale_of(values) or Scale(0.1, 1.0)
    low, high = scale.floor / 1.3, scale.top * 1.2
    places = [(max(pair.predicted.value, low), max(pair.measured.value, low)) for pair in pairs]
    is_below = [min(pair.predicted.value, pair.measured.value) < low for pair in pairs]
    columns = [sensitivity.formats.index(pair.name) for pair in pairs]
    texts = {
        "predicted": [estimate_text(pair.predicted.value, pair.predicted.error) for pair in pairs],
        "measured": [estimate_text(pair.measured.value, pair.measured.error) for pair in pairs],
    }
    tips = Tips(
        [pair.row.layer for pair in pairs],
        [f"{pair.name} in {pair.row.kind}" for pair in pairs],
        tuple(Values(name, column) for name, column in texts.items()),
    )
    marks = (
        Line([low, high], [low, high], tone="faint", style="dashed", width=1.0),
        Dots(
            [x for x, _ in places],
            [y for _, y in places],
            ["ring" if below else _shape(column)
             for below, column in zip(is_below, columns, strict=True)],
            reach=[pair.measured.value + (pair.measured.error or 0.0) for pair in pairs],
            tone=[_tone(column) for column in columns],
            key=[pair.row.layer for pair in pairs],
            tips=tips,
        ),
    )  # fmt: skip
    names = tuple(map(cell_text, scale.tens))
    across = Axis(low, high, "predicted", "log", tuple(scale.tens), names)
    up = Axis(low, high, "measured", "log", tuple(scale.tens), names)
    return Panel(across, up, marks, 320), sum(is_below)


def _tone(column: int) -> str:
    return f"group-{column % 6}"


def _shape(column: int) -> Shape:
    return SHAPES[column % len(SHAPES)]


def _ranks(sensitivity: Sensitivity) -> dict[str, str]:
    """The rank correlation of each format's predictions with the measurements."""
    method = next((row for row in sensitivity.methods if row.name == sensitivity.method), None)
    known = method.agreement.items() if method is not None else ()
    return {name: f"{rank:.2f}" for name, rank in known if math.isfinite(rank)}


def _scores(sensitivity: Sensitivity, method: str) -> dict[tuple[str, str], Estimate]:
    """All scores of a method, by layer and format."""
    return {
        (row.layer, name): row.scores[name][method]
        for row in sensitivity.rows
        for name in sensitivity.formats
        if method in row.scores.get(name, {}) and not math.isnan(row.scores[name][method].value)
    }
