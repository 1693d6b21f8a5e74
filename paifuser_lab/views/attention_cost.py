"""Sparse attention: error and speed-up by the share of keys kept, and each layer's error below."""

from __future__ import annotations

import math
from dataclasses import replace

from ..records import AttentionCost
from ..records.text import readable_ms
from .heat_scale import Scale, cell_text, heat_panel, scale_of
from .picture import (
    Axis,
    Boxes,
    Cursor,
    Dots,
    Labels,
    Line,
    Panel,
    Picture,
    Rules,
    Tips,
    Values,
    log_ticks,
)

MAX_LAYERS = 40
MAX_RATIO = 1e3  # of the largest error to the smallest that is drawn: with all keys it is nothing
HEIGHT = 170
SAME = "The same share is kept in every layer that takes part."


def picture(cost: AttentionCost) -> Picture:
    """The curves, and under them a row per layer."""
    layers = cost.layers[:MAX_LAYERS]
    left_out = len(cost.layers) - len(layers)
    reasons = tuple((layer.layer, layer.reason) for layer in layers if layer.reason)
    unknown = (math.nan,) * len(cost.keeps)
    values = [(layer.errors or unknown)[::-1] for layer in layers]
    panel = heat_panel(
        [layer.layer for layer in layers],
        _shares(cost),
        values,
        error_scale(cost),
        [["–" if math.isnan(value) else cell_text(value) for value in row] for row in values],
        "share of the keys that is kept",
    )
    title = "error of each layer's attention" if layers else "no layer attends"
    below = Picture(title, title, ((panel,),) if layers else ())
    more = f"{left_out} more layers left out" if left_out else ""
    return replace(chart(cost), below=(below,), items=reasons, note=more)


def error_scale(cost: AttentionCost) -> Scale | None:
    """The colours of the layers' errors, without negligible ones."""
    errors = [error for layer in cost.layers for error in layer.errors if error < math.inf]
    return scale_of(error for error in errors if error >= max(errors) / MAX_RATIO)


def chart(cost: AttentionCost) -> Picture:
    """Two curves over the shares, the largest to the right."""
    known = [cost.speedup(index) for index in range(len(cost.keeps))][::-1]
    speeds = [speed for speed in known if speed is not None]
    panels = [_errors(cost), *([_speed(cost, speeds)] if speeds else [])]
    return Picture(
        title=cost.title,
        label="share of the keys that is kept",
        sentence=cost.note or (SAME if cost.layers else "No layer of this model attends."),
        rows=tuple((panel,) for panel in panels) if cost.layers else (),
        note="" if speeds else "it was not timed",
        cursor=_cursor(cost, speeds),
    )


def _errors(cost: AttentionCost) -> Panel:
    """Errors on a logarithmic scale; tiny ones, as with all keys kept, lie at its bottom."""
    errors = cost.errors[::-1]
    known = [error for error in errors if 0 < error < math.inf]
    least = 0.0 if 0 in errors or not known else min(known)
    low, high = (max(least, max(known) / MAX_RATIO), max(known)) if known else (0.01, 1.0)
    low_end, high_end = low / 1.5, high * 1.5
    ticks = log_ticks(low_end, high_end, 4)
    names = tuple(map(cell_text, ticks))
    y = Axis(low_end, high_end, "output error", "log", ticks, names)
    values = [min(max(error, low), high) for error in errors]
    at = range(len(values))
    marks = (Line(at, values), Dots(at, values, tone="main"))
    return Panel(_across(cost, is_named=not cost.latency_ms), y, marks, HEIGHT)


def _speed(cost: AttentionCost, speeds: list[float]) -> Panel:
    """Below 1 × the background marks it as slower."""
    low, high = min(1.0, *speeds), max(1.0, *speeds)
    room = max(0.05, 0.14 * (high - low))
    y = Axis.linear(max(0.0, low - room), high + room, "times as fast", most=4)
    x, at = _across(cost, is_named=True), range(len(speeds))
    marks = (
        Boxes([x.low], [x.high], [y.low], [1.0], tone="bad", is_tint=True),
        Rules("y", [1.0], tone="faint", style="dashed"),
        Line(at, speeds),
        Dots(at, speeds, tone=["bad" if speed < 0.995 else "main" for speed in speeds]),
        Labels([x.low], [y.low], ["slower"] if y.low < 1 - room / 2 else [""], lift=8, tone="soft"),
    )
    return Panel(x, y, marks, HEIGHT)


def _across(cost: AttentionCost, *, is_named: bool) -> Axis:
    count = len(cost.keeps)
    label = "share of the keys that is kept" if is_named else ""
    return Axis(-0.5, count - 0.5, label, "linear", range(count), _shares(cost))


def _shares(cost: AttentionCost) -> tuple[str, ...]:
    """The shares as text, the smallest first."""
    return tuple(f"{100 * keep:.3g} %" for keep in cost.keeps[::-1])


def _cursor(cost: AttentionCost, speeds: list[float]) -> Cursor:
    figures = [Values("error of the output", list(map(cell_text, cost.errors[::-1])))]
    if speeds:
        figures.append(Values("", [_pace(speed) for speed in speeds]))
        figures.append(Values("ms", [readable_ms(ms) for ms in cost.latency_ms[::-1]]))
    if cost.metric and cost.values:
        figures.append(Values(cost.metric, [f"{value:.4f}" for value in cost.values[::-1]]))
        if cost.dense_value is not None:
            name = f"{cost.metric} with all keys"
            figures.append(Values(name, [f"{cost.dense_value:.4f}"] * len(cost.keeps)))
    heading = [f"{share} of the keys kept" for share in _shares(cost)]
    return Cursor(range(len(heading)), Tips(heading, (), tuple(figures)), len(heading) - 1)


def _pace(speed: float) -> str:
    word = "" if speed > 1.005 else " – slower" if speed < 0.995 else " – the same"
    return f"{speed:.2f} × as fast{word}"
