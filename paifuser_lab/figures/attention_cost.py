"""Sparse attention: error and speed-up by the share of keys kept, with the error of each layer
below.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..records import AttentionCost, AttentionLayer
from .heat_scale import DARK_RAMP, RAMP, Scale, cell_text, scale_of
from .sheet import visible, without_middle
from .style import Drawing, Theme, blank

MAX_LAYERS = 40
LAYER_HEIGHT = 0.2  # inches
MAX_RATIO = 1e3  # of the largest error to the smallest with a colour, as in the widget


def draw(cost: AttentionCost, *, dark: bool = False) -> Drawing:
    """Two curves over the shares, the largest to the right; under them a row per layer."""
    layers = cost.layers[:MAX_LAYERS]
    below = LAYER_HEIGHT * max(1, len(layers) + (len(cost.layers) > MAX_LAYERS)) + 0.1
    drawing, axes, theme = blank(visible(cost.title), height=3.0 + below, dark=dark)
    grid = GridSpec(2, 2, figure=drawing, height_ratios=[2.3, below])
    axes.set_subplotspec(grid[0, 0])
    _draw_errors(drawing, axes, cost, theme)
    speeds = drawing.add_subplot(grid[0, 1], facecolor=theme.paper)
    _draw_speeds(drawing, speeds, cost, theme)
    heat = drawing.add_subplot(grid[1, :], facecolor=theme.paper)
    _draw_layers(drawing, heat, cost, theme, DARK_RAMP if dark else RAMP)
    return drawing


def _draw_errors(drawing: Drawing, axes: Axes, cost: AttentionCost, theme: Theme) -> None:
    """Draw errors on a logarithmic scale; tiny ones, as with all keys kept, lie at its bottom."""
    known = [error for error in cost.errors if 0 < error < float("inf")]
    least = 0.0 if 0 in cost.errors or not known else min(known)
    floor = max(least, max(known) / MAX_RATIO) if known else 1e-3
    _draw_curve(
        drawing,
        axes,
        cost,
        [max(error, floor) for error in cost.errors],
        [f"error {cell_text(error)}" for error in cost.errors],
        theme,
    )
    axes.set_yscale("log")
    is_wide = bool(known) and max(known) > 10 * floor
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1.0,) if is_wide else (1.0, 2.0, 5.0), numticks=6)
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: cell_text(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title("error of the output", loc="left", color=theme.ink, fontsize=9)


def _draw_speeds(drawing: Drawing, axes: Axes, cost: AttentionCost, theme: Theme) -> None:
    """Draw the speed-up; below 1 × the background marks it as slower."""
    speeds = [cost.speedup(index) for index in range(len(cost.keeps))]
    timed = [speed for speed in speeds if speed is not None]
    if len(timed) < len(speeds):
        axes.set_axis_off()
        axes.text(
            0.5,
            0.5,
            "it was not timed",
            ha="center",
            color=theme.soft,
            fontsize=9,
            transform=axes.transAxes,
        )
        return
    words = [
        f"{speed:.2f} × as fast, {ms:.4g} ms"
        for speed, ms in zip(timed, cost.latency_ms, strict=True)
    ]
    _draw_curve(drawing, axes, cost, timed, words, theme)
    low, high = min(1.0, *timed), max(1.0, *timed)
    room = max(0.05, 0.14 * (high - low))
    axes.set_ylim(max(0.0, low - room), high + room)
    axes.axhspan(0, 1, color=theme.bad, alpha=0.08, linewidth=0)
    axes.axhline(1, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_title("times as fast, measured", loc="left", color=theme.ink, fontsize=9)


def _draw_curve(
    drawing: Drawing,
    axes: Axes,
    cost: AttentionCost,
    values: Sequence[float],
    words: Sequence[str],
    theme: Theme,
) -> None:
    xs = _positions(cost)
    axes.plot(xs, values, color=theme.main, linewidth=1.6)
    for x, value, keep, word in zip(xs, values, cost.keeps, words, strict=True):
        (mark,) = axes.plot([x], [value], marker="o", markersize=4.5, color=theme.main)
        drawing.add_tooltip(mark, f"{keep:.3g} of the keys kept: {word}")
    axes.set_xticks(xs, [f"{keep:.3g}" for keep in cost.keeps])
    axes.set_xlim(-0.5, len(cost.keeps) - 0.5)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0, which="both")
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)


def _draw_layers(
    drawing: Drawing, axes: Axes, cost: AttentionCost, theme: Theme, ramp: tuple[str, ...]
) -> None:
    layers = cost.layers[:MAX_LAYERS]
    errors = [error for layer in cost.layers for error in layer.errors if error < float("inf")]
    scale = scale_of(error for error in errors if error >= max(errors) / MAX_RATIO)
    for row, layer in enumerate(layers):
        if layer.reason:
            axes.text(
                -0.45,
                row,
                visible(layer.reason)[:90],
                va="center",
                color=theme.soft,
                fontsize=7.5,
                parse_math=False,
            )
        for x, keep, error in zip(_positions(cost), cost.keeps, layer.errors, strict=False):
            _draw_cell(
                drawing, axes, (x, row), _tooltip(layer, keep, error), scale, error, theme, ramp
            )
    left_out = len(cost.layers) - len(layers)
    names = [without_middle(visible(layer.layer), 34) for layer in layers] + (
        [f"{left_out} more left out"] if left_out else []
    )
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xticks(_positions(cost), [f"{keep:.3g}" for keep in cost.keeps])
    axes.set_xlim(-0.5, len(cost.keeps) - 0.5)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.tick_params(colors=theme.ink, labelsize=8, length=0)
    axes.set_xlabel("share of the keys that is kept", color=theme.ink, fontsize=9)
    axes.set_title(
        "error of each layer's attention" if layers else "no layer attends",
        loc="left",
        color=theme.ink,
        fontsize=9,
    )
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_cell(
    drawing: Drawing,
    axes: Axes,
    position: tuple[int, int],
    word: str,
    scale: Scale | None,
    error: float,
    theme: Theme,
    ramp: tuple[str, ...],
) -> None:
    """Draw a cell in its colour, with its number in a contrasting ink."""
    step = scale.step(error) if scale is not None else -1
    mark = Rectangle(
        (position[0] - 0.48, position[1] - 0.45),
        0.96,
        0.9,
        facecolor=ramp[step] if step >= 0 else "none",
        linewidth=0,
    )
    axes.add_patch(mark)
    drawing.add_tooltip(mark, word)
    is_ink_light = step <= 4 if ramp is DARK_RAMP else step >= 6
    ink = theme.ink if step < 0 else "#ffffff" if is_ink_light else "#111111"
    axes.text(*position, cell_text(error), ha="center", va="center", color=ink, fontsize=7.5)


def _tooltip(layer: AttentionLayer, keep: float, error: float) -> str:
    return (
        f"{layer.layer}: {layer.queries} × {layer.keys} × {layer.heads} heads\n"
        f"{keep:.3g} of the keys kept: error {cell_text(error)}"
    )


def _positions(cost: AttentionCost) -> list[int]:
    """The x of each share: evenly spaced, the largest to the right."""
    return list(range(len(cost.keeps)))[::-1]
