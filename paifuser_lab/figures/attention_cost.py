"""What attention to a part of the keys costs: error and speed over the share that is kept, and the
error of each layer below.
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

SHOWN = 40
LAYER = 0.2  # inches of a layer
WIDEST = 1e3  # from the least error that has a colour to the most, as in the widget


def draw(found: AttentionCost, *, dark: bool = False) -> Drawing:
    """Two curves over the same stops, the most kept to the right; under them a row a layer."""
    layers = found.layers[:SHOWN]
    below = LAYER * max(1, len(layers) + (len(found.layers) > SHOWN)) + 0.1
    drawing, axes, theme = blank(visible(found.title), height=3.0 + below, dark=dark)
    grid = GridSpec(2, 2, figure=drawing, height_ratios=[2.3, below])
    axes.set_subplotspec(grid[0, 0])
    _draw_errors(drawing, axes, found, theme)
    speeds = drawing.add_subplot(grid[0, 1], facecolor=theme.paper)
    _draw_speeds(drawing, speeds, found, theme)
    heat = drawing.add_subplot(grid[1, :], facecolor=theme.paper)
    _draw_layers(drawing, heat, found, theme, DARK_RAMP if dark else RAMP)
    return drawing


def _draw_errors(drawing: Drawing, axes: Axes, found: AttentionCost, theme: Theme) -> None:
    """On a logarithmic scale; what is next to nothing, as where all keys are kept, stands at its
    foot.
    """
    known = [error for error in found.errors if 0 < error < float("inf")]
    least = 0.0 if 0 in found.errors or not known else min(known)
    floor = max(least, max(known) / WIDEST) if known else 1e-3
    _draw_curve(
        drawing,
        axes,
        found,
        [max(error, floor) for error in found.errors],
        [f"error {cell_text(error)}" for error in found.errors],
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


def _draw_speeds(drawing: Drawing, axes: Axes, found: AttentionCost, theme: Theme) -> None:
    """The speed-up as text; below 1 × it reads as slower."""
    speeds = [found.speedup(index) for index in range(len(found.keeps))]
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
        for speed, ms in zip(timed, found.latency_ms, strict=True)
    ]
    _draw_curve(drawing, axes, found, timed, words, theme)
    low, high = min(1.0, *timed), max(1.0, *timed)
    room = max(0.05, 0.14 * (high - low))
    axes.set_ylim(max(0.0, low - room), high + room)
    axes.axhspan(0, 1, color=theme.bad, alpha=0.08, linewidth=0)
    axes.axhline(1, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_title("times as fast, measured", loc="left", color=theme.ink, fontsize=9)


def _draw_curve(
    drawing: Drawing,
    axes: Axes,
    found: AttentionCost,
    values: Sequence[float],
    words: Sequence[str],
    theme: Theme,
) -> None:
    places = _places(found)
    axes.plot(places, values, color=theme.main, linewidth=1.6)
    for place, value, keep, word in zip(places, values, found.keeps, words, strict=True):
        (mark,) = axes.plot([place], [value], marker="o", markersize=4.5, color=theme.main)
        drawing.add_tooltip(mark, f"{keep:.3g} of the keys kept: {word}")
    axes.set_xticks(places, [f"{keep:.3g}" for keep in found.keeps])
    axes.set_xlim(-0.5, len(found.keeps) - 0.5)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0, which="both")
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)


def _draw_layers(
    drawing: Drawing, axes: Axes, found: AttentionCost, theme: Theme, ramp: tuple[str, ...]
) -> None:
    layers = found.layers[:SHOWN]
    errors = [error for one in found.layers for error in one.errors if error < float("inf")]
    scale = scale_of(error for error in errors if error >= max(errors) / WIDEST)
    for row, one in enumerate(layers):
        if one.reason:
            axes.text(
                -0.45,
                row,
                visible(one.reason)[:90],
                va="center",
                color=theme.soft,
                fontsize=7.5,
                parse_math=False,
            )
        for place, keep, error in zip(_places(found), found.keeps, one.errors, strict=False):
            _draw_cell(
                drawing, axes, (place, row), _tooltip(one, keep, error), scale, error, theme, ramp
            )
    left_out = len(found.layers) - len(layers)
    names = [without_middle(visible(one.layer), 34) for one in layers] + (
        [f"{left_out} more left out"] if left_out else []
    )
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xticks(_places(found), [f"{keep:.3g}" for keep in found.keeps])
    axes.set_xlim(-0.5, len(found.keeps) - 0.5)
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
    at: tuple[int, int],
    word: str,
    scale: Scale | None,
    error: float,
    theme: Theme,
    ramp: tuple[str, ...],
) -> None:
    """A cell's colour, and its number in an ink with enough contrast."""
    step = scale.step(error) if scale is not None else -1
    mark = Rectangle(
        (at[0] - 0.48, at[1] - 0.45),
        0.96,
        0.9,
        facecolor=ramp[step] if step >= 0 else "none",
        linewidth=0,
    )
    axes.add_patch(mark)
    drawing.add_tooltip(mark, word)
    is_ink_light = step <= 4 if ramp is DARK_RAMP else step >= 6
    ink = theme.ink if step < 0 else "#ffffff" if is_ink_light else "#111111"
    axes.text(*at, cell_text(error), ha="center", va="center", color=ink, fontsize=7.5)


def _tooltip(one: AttentionLayer, keep: float, error: float) -> str:
    return (
        f"{one.layer}: {one.queries} × {one.keys} × {one.heads} heads\n{keep:.3g} of the keys "
        f"kept: error {cell_text(error)}"
    )


def _places(found: AttentionCost) -> list[int]:
    """Where the stops stand: equally far apart, the most kept to the right."""
    return list(range(len(found.keeps)))[::-1]
