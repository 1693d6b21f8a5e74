"""A training over its steps: loss, learning rate, gradient norm, loss scale, and the sizes of the
gradient; what was switched is numbered. Also the curve of a rate finder.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

import numpy
from matplotlib.colors import LinearSegmentedColormap, LogNorm

from ..records import RateCurve, TrainingRun
from ..records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH
from .heat_scale import ramp_of
from .style import Drawing, Plot, blank

MOST_POINTS = 2000  # more would be thinner than a line
MOST_RANKS = 16  # rows; the table has all


def draw(run: TrainingRun, *, dark: bool = False) -> Drawing:
    """The loss above; below it the rate, the gradient's norm, the scale, and the sizes."""
    has_scale, has_ranges = set(run.scales) - {1.0}, bool(run.ranges)
    heights = [2.4, 1.0, 1.0, *([0.7] if has_scale else []), *([1.6] if has_ranges else [])]
    over_steps = len(heights)
    if run.ranks:
        heights.append(0.5 + 0.26 * min(len(run.ranks), MOST_RANKS))
    loss = blank(run.title, height=0.9 + 0.95 * sum(heights), dark=dark)
    grid = loss.drawing.add_gridspec(len(heights), 1, height_ratios=heights)
    loss.set_subplotspec(grid[0])
    below = [loss.drawing.add_plot(grid[row], sharex=loss) for row in range(1, over_steps)]
    _draw_losses(loss, run)
    columns = [("learning rate", run.rates), ("gradient norm", run.gradient_norms)]
    columns += [("loss scale", run.scales)] if has_scale else []
    for axes, (name, values) in zip(below, columns, strict=False):
        _line(axes, values, loss.theme.main)
        axes.label(y=name)
        if name != "learning rate" and any(value > 0 for value in values):
            axes.set_yscale("log")
            axes.powers(axes.yaxis)
    if has_ranges:
        _draw_ranges(below[-1], run)
    for axes in (loss, *below):
        _draw_events(axes, run, is_named=axes is loss)
        axes.tick_params(labelbottom=axes is (below[-1]))
    below[-1].label(x="step")
    loss.set_xlim(0, max(1, len(run.losses) - 1))
    if run.ranks:
        _draw_ranks(loss.drawing.add_plot(grid[-1]), run)
    return loss.drawing


def draw_rates(curve: RateCurve, *, dark: bool = False) -> Drawing:
    """The loss over the learning rate, with the suggested one."""
    axes = blank(curve.title, height=2.8, dark=dark)
    theme = axes.theme
    axes.plot(curve.rates, curve.losses, color=theme.faint, linewidth=1)
    axes.plot(curve.rates, curve.smooth, color=theme.main, linewidth=1.8)
    axes.axvline(curve.suggested, color=theme.good, linewidth=1.4, linestyle=(0, (4, 3)))
    axes.note(
        f"suggested {curve.suggested:.2g}",
        (curve.suggested, 1.0),
        (5, -3),
        xycoords=("data", "axes fraction"),
        va="top",
        size=9,
    )
    axes.set_xscale("log")
    lowest, start = min(curve.smooth), curve.smooth[0]
    axes.set_ylim(
        min(lowest, start) - 0.1 * abs(start), max(start, lowest) + 0.5 * abs(start) + 1e-9
    )
    axes.label(x="learning rate", y="loss")
    return axes.drawing


def _draw_losses(axes: Plot, run: TrainingRun) -> None:
    theme = axes.theme
    _line(axes, run.losses, theme.faint)
    window = max(1, len(run.losses) // 50)
    values = numpy.asarray(run.losses, float)
    kernel = numpy.ones(window)
    counts = numpy.convolve(numpy.isfinite(values).astype(float), kernel, "valid")
    sums = numpy.convolve(numpy.nan_to_num(values, posinf=0, neginf=0), kernel, "valid")
    if len(sums) and counts.all():
        steps = numpy.arange(len(sums)) + window - 1
        axes.plot(steps, sums / counts, color=theme.main, linewidth=1.8)
    skipped = [step for step, is_skipped in enumerate(run.is_skipped) if is_skipped]
    if skipped:
        low, _ = axes.get_ylim()
        look: dict[str, Any] = {
            "marker": "x",
            "markersize": 5,
            "linestyle": "none",
            "clip_on": False,
        }
        axes.plot(skipped, [low] * len(skipped), color=theme.bad, **look)
    for start, end in _spans(run.is_lower):
        axes.axvspan(start, end, color=theme.main, alpha=0.08, linewidth=0)
    if any(run.is_lower):
        start = run.is_lower.index(True)
        axes.note(run.precision, (start, 0.0), (4, 3), xycoords=("data", "axes fraction"), size=8)
    axes.label(y="loss")


def _draw_ranks(axes: Plot, run: TrainingRun) -> None:
    """A row for each rank: what it computes and waits for in a step, in the middle."""
    theme = axes.theme
    ranks = run.ranks[:MOST_RANKS]
    for row, rank in enumerate(ranks):
        computed = median(rank.computed_ms or (0.0,))
        waited = median(rank.waited_ms or (0.0,))
        axes.barh(row, computed, height=0.7, color=theme.compute)
        axes.barh(row, waited, left=computed, height=0.7, color=theme.memory)
        words = f"{rank.row['sent']} sent, waited {rank.row['waited']}"
        axes.end_label(words, (computed + waited, row))
    axes.set_yticks(range(len(ranks)), [f"rank {rank.rank}" for rank in ranks])
    axes.set_ylim(len(ranks) - 0.4, -0.6)
    axes.margins(x=0.45)
    axes.set_xlim(left=0)
    more = len(run.ranks) - len(ranks)
    axes.label(x=f"ms a step: computed, then waited{f'; {more} more ranks' if more else ''}")


def _draw_ranges(axes: Plot, run: TrainingRun) -> None:
    """How many elements of the gradient, over all layers, have each size."""
    counts = numpy.asarray([numpy.sum(row.counts, axis=0)[1:] for row in run.ranges], float).T
    steps = [row.step for row in run.ranges]
    edges = [*steps, max(len(run.losses), steps[-1] + 1)]
    sizes = LOWEST_EXPONENT + RANGE_WIDTH * numpy.arange(RANGE_BINS + 1)
    colours = LinearSegmentedColormap.from_list("heat", ramp_of(axes.theme))
    if counts.max() > 0:
        axes.pcolormesh(
            edges,
            sizes,
            numpy.where(counts > 0, counts, math.nan),
            norm=LogNorm(1, max(2.0, counts.max())),
            cmap=colours,
            rasterized=True,
        )
    axes.set_yticks(range(-40, 9, 16), [f"2^{power}" for power in range(-40, 9, 16)])
    axes.axhline(-14, color=axes.theme.faint, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.label(y="gradient sizes")


def _draw_events(axes: Plot, run: TrainingRun, *, is_named: bool) -> None:
    """A dashed line at each switch, numbered as in the legend under the title."""
    theme = axes.theme
    for number, event in enumerate(run.events, 1):
        axes.axvline(event.step, color=theme.soft, linewidth=1, linestyle=(0, (3, 3)))
        if is_named:
            top: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "top", "size": 8}
            axes.note(str(number), (event.step, 1.0), (2, -2), **top)
    if is_named and run.events:
        words = "\n".join(
            f"{number}  step {event.step}: {event.what}"
            for number, event in enumerate(run.events[:6], 1)
        )
        axes.set_title(
            words, loc="left", color=theme.ink, fontsize=8, parse_math=False, linespacing=1.4
        )


def _line(axes: Plot, values: tuple[float, ...], colour: str) -> None:
    every = max(1, len(values) // MOST_POINTS)
    axes.plot(range(0, len(values), every), values[::every], color=colour, linewidth=1.2)


def _spans(flags: tuple[bool, ...]) -> list[tuple[int, int]]:
    """The stretches of true flags."""
    changes = [index for index in range(1, len(flags)) if flags[index] != flags[index - 1]]
    edges = [0, *changes, len(flags)]
    return [(start, end) for start, end in pairwise(edges) if start < end and flags[start]]
