"""Sparse attention: error and speed-up by the share of keys kept, with the error of each layer
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import AttentionCost, AttentionLayer
from .heat_scale import cell_text, ink_on, ramp_of, scale_of
from .style import Drawing, Plot, blank, visible, without_middle

MAX_LAYERS = 40
LAYER_HEIGHT = 0.2  # inches
MAX_RATIO = 1e3  # of the largest error to the smallest with a colour, as in the widget


def draw(cost: AttentionCost, *, dark: bool = False) -> Drawing:
    """Two curves over the shares, the largest to the right; under them a row per layer."""
    layers = cost.layers[:MAX_LAYERS]
    below = LAYER_HEIGHT * max(1, len(layers) + (len(cost.layers) > MAX_LAYERS)) + 0.1
    axes = blank(cost.title, height=3.0 + below, dark=dark)
    grid = axes.drawing.add_gridspec(2, 2, height_ratios=[2.3, below])
    axes.set_subplotspec(grid[0, 0])
    _draw_errors(axes, cost)
    _draw_speeds(axes.drawing.add_plot(grid[0, 1]), cost)
    _draw_layers(axes.drawing.add_plot(grid[1, :]), cost)
    return axes.drawing


def _draw_errors(axes: Plot, cost: AttentionCost) -> None:
    """Draw errors on a logarithmic scale; tiny ones, as with all keys kept, lie at its bottom."""
    known = [error for error in cost.errors if 0 < error < float("inf")]
    least = 0.0 if 0 in cost.errors or not known else min(known)
    floor = max(least, max(known) / MAX_RATIO) if known else 1e-3
    _draw_curve(
        axes,
        cost,
        [max(error, floor) for error in cost.errors],
        [f"error {cell_text(error)}" for error in cost.errors],
    )
    axes.set_yscale("log")
    axes.powers(axes.yaxis, cell_text, is_wide=bool(known) and max(known) > 10 * floor)
    axes.label(title="error of the output")


def _draw_speeds(axes: Plot, cost: AttentionCost) -> None:
    """Draw the speed-up; below 1 × the background marks it as slower."""
    theme = axes.theme
    speeds = [cost.speedup(index) for index in range(len(cost.keeps))]
    timed = [speed for speed in speeds if speed is not None]
    if len(timed) < len(speeds):
        axes.set_axis_off()
        look: dict[str, Any] = {
            "ha": "center",
            "color": theme.soft,
            "size": 9,
            "xycoords": "axes fraction",
        }
        axes.note("it was not timed", (0.5, 0.5), **look)
        return
    words = [
        f"{speed:.2f} × as fast, {ms:.4g} ms"
        for speed, ms in zip(timed, cost.latency_ms, strict=True)
    ]
    _draw_curve(axes, cost, timed, words)
    low, high = min(1.0, *timed), max(1.0, *timed)
    room = max(0.05, 0.14 * (high - low))
    axes.set_ylim(max(0.0, low - room), high + room)
    axes.axhspan(0, 1, color=theme.bad, alpha=0.08, linewidth=0)
    axes.dashed(y=1)
    axes.label(title="times as fast, measured")


def _draw_curve(
    axes: Plot,
    cost: AttentionCost,
    values: Sequence[float],
    words: Sequence[str],
) -> None:
    theme = axes.theme
    xs = _positions(cost)
    axes.plot(xs, values, color=theme.main, linewidth=1.6)
    for x, value, keep, word in zip(xs, values, cost.keeps, words, strict=True):
        tooltip = f"{keep:.3g} of the keys kept: {word}"
        axes.mark((x, value), theme.main, tooltip=tooltip, markersize=4.5)
    axes.set_xticks(xs, [f"{keep:.3g}" for keep in cost.keeps])
    axes.set_xlim(-0.5, len(cost.keeps) - 0.5)
    axes.show_grid()


def _draw_layers(axes: Plot, cost: AttentionCost) -> None:
    layers = cost.layers[:MAX_LAYERS]
    errors = [error for layer in cost.layers for error in layer.errors if error < float("inf")]
    scale = scale_of(error for error in errors if error >= max(errors) / MAX_RATIO)
    for row, layer in enumerate(layers):
        if layer.reason:
            reason = visible(layer.reason)[:90]
            axes.note(reason, (-0.45, row), va="center", color=axes.theme.soft, size=7.5)
        for x, keep, error in zip(_positions(cost), cost.keeps, layer.errors, strict=False):
            step = scale.step(error) if scale is not None else -1
            colour = ramp_of(axes.theme)[step] if step >= 0 else "none"
            look: dict[str, Any] = {"facecolor": colour, "linewidth": 0}
            tooltip = _tooltip(layer, keep, error)
            axes.box((x - 0.48, row - 0.45), (0.96, 0.9), tooltip=tooltip, **look)
            middle: dict[str, Any] = {"ha": "center", "va": "center", "size": 7.5}
            axes.note(cell_text(error), (x, row), color=ink_on(step, axes.theme), **middle)
    left_out = len(cost.layers) - len(layers)
    names = [without_middle(visible(layer.layer), 34) for layer in layers] + (
        [f"{left_out} more left out"] if left_out else []
    )
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xticks(_positions(cost), [f"{keep:.3g}" for keep in cost.keeps])
    axes.set_xlim(-0.5, len(cost.keeps) - 0.5)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    title = "error of each layer's attention" if layers else "no layer attends"
    axes.label(x="share of the keys that is kept", title=title)
    axes.spines[:].set_visible(False)


def _tooltip(layer: AttentionLayer, keep: float, error: float) -> str:
    return (
        f"{layer.layer}: {layer.queries} × {layer.keys} × {layer.heads} heads\n"
        f"{keep:.3g} of the keys kept: error {cell_text(error)}"
    )


def _positions(cost: AttentionCost) -> list[int]:
    """The x of each share: evenly spaced, the largest to the right."""
    return list(range(len(cost.keeps)))[::-1]
