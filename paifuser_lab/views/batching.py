"""Throughput, latency and memory by batch size; latency against throughput of dynamic batching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.ticker import NullLocator

from ..records import BatchingCurve, BatchSweep, readable_bytes
from ..records.text import readable_rate
from .style import Drawing, Plot, blank

Points = list[tuple[int, float]]


def draw(sweep: BatchSweep, *, dark: bool = False) -> Drawing:
    """Throughput above, latency and memory below."""
    axes = blank(sweep.title, height=4.6, dark=dark)
    grid = axes.drawing.add_gridspec(2, 2, height_ratios=(3, 2))
    axes.set_subplotspec(grid[0, :])
    latency, memory = (axes.drawing.add_plot(grid[1, side]) for side in (0, 1))
    _draw_throughput(axes, sweep)
    times = [(row.batch, row.latency_ms or 0.0) for row in sweep.ran]
    sizes = [(row.batch, float(row.peak_bytes or 0)) for row in sweep.ran]
    _draw_cost(latency, sweep, times, readable_rate)
    _draw_cost(memory, sweep, sizes, _bytes)
    _draw_limit(memory, sweep)
    latency.label(x="batch size", y="latency, ms")
    memory.label(x="batch size", y="memory")
    return axes.drawing


def _draw_throughput(axes: Plot, sweep: BatchSweep) -> None:
    theme = axes.theme
    rates = [(row.batch, row.throughput_per_s or 0.0) for row in sweep.ran]
    best, knee = sweep.best, sweep[sweep.knee]
    top, at_knee = best.throughput_per_s or 0.0, knee.throughput_per_s or 0.0
    axes.dashed(y=sweep.plateau * top)
    # whether the knee is right of the middle; labels go to the other side
    is_right = knee.batch**2 > sweep.rows[0].batch * sweep.rows[-1].batch
    axes.note(
        f"{sweep.plateau:.0%} of the best",
        (0.0 if is_right else 1.0, sweep.plateau * top),
        (0, 3 if is_right else -3),
        xycoords=("axes fraction", "data"),
        ha="left" if is_right else "right",
        va="bottom" if is_right else "top",
        size=8,
    )
    axes.plot(*zip(*rates, strict=True), color=theme.main, linewidth=1.8, marker="o", markersize=4)
    axes.ring((knee.batch, at_knee), 12)
    _scale_batches(axes, sweep)
    axes.vlines(knee.batch, 0, at_knee, color=theme.good, linewidth=1.2, linestyle=(0, (1, 2)))
    axes.note(
        f"batch {knee.batch} · {readable_rate(at_knee)} a second",
        (knee.batch, 0),
        (7, 4),
        to_left=is_right,
        size=9.5,
        weight="bold",
    )
    axes.set_ylim(0, 1.15 * max(rate for _, rate in rates))
    axes.label(y="examples a second")


def _draw_cost(
    axes: Plot, sweep: BatchSweep, points: Points, readable: Callable[[float], str]
) -> None:
    """Draw latency or memory on a logarithmic scale, with the knee marked."""
    look: dict[str, Any] = {"linewidth": 1.5, "marker": "o", "markersize": 3}
    axes.plot(*zip(*points, strict=True), color=axes.theme.main, **look)
    knee = dict(points)[sweep.knee]
    axes.ring((sweep.knee, knee))
    axes.note(readable(knee), (sweep.knee, knee), (5, -5), va="top")
    axes.set_yscale("log")
    low, high = min(value for _, value in points), max(value for _, value in points)
    axes.set_ylim(low / 1.6, 2.2 * high)
    _scale_cost(axes, readable)
    _scale_batches(axes, sweep)


def _draw_limit(axes: Plot, sweep: BatchSweep) -> None:
    """Draw the limit, and the predicted memory of batches that were skipped because of it."""
    theme = axes.theme
    limit = sweep.memory_limit_bytes
    refused = [
        (row.batch, row.predicted_bytes)
        for row in sweep.rows
        if row.failure and row.predicted_bytes
    ]
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 2.5 * max([limit, *(needed for _, needed in refused)])))
    _scale_cost(axes, _bytes)
    axes.axhline(limit, color=theme.bad, linewidth=1.2)
    across = ("axes fraction", "data")
    axes.note(f"limit {readable_bytes(limit)}", (0.02, limit), (0, 3), xycoords=across, size=8)
    for place in refused:
        axes.mark(place, theme.bad, marker="x", markersize=5)


def _scale_cost(axes: Plot, readable: Callable[[float], str]) -> None:
    low, high = axes.get_ylim()
    axes.powers(axes.yaxis, readable, is_wide=high >= 50 * low)


def _scale_batches(axes: Plot, sweep: BatchSweep) -> None:
    """Set a logarithmic scale of base 2, with each measured power of two labelled."""
    batches = [row.batch for row in sweep.rows]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(batches) / 1.25, max(batches) * 1.25)
    powers = [batch for batch in batches if batch & (batch - 1) == 0] or [sweep.knee]
    axes.set_xticks(powers, [str(batch) for batch in powers])
    axes.xaxis.set_minor_locator(NullLocator())


def _bytes(value: float) -> str:
    return readable_bytes(int(value))


MARKS = ("o", "s", "^", "D", "v", "P")


def draw_curve(curve: BatchingCurve, *, dark: bool = False) -> Drawing:
    """The median of each rule at each rate, and the 95th percentile above it, fainter."""
    axes = blank(curve.title, height=3.4, dark=dark)
    theme = axes.theme
    colours = (theme.soft, theme.main, theme.good, theme.memory, theme.overhead, theme.bad)
    for index, (rule, points) in enumerate(curve.rules.items()):
        rates = [point.answered_per_s for point in points]
        colour, mark = colours[index % len(colours)], MARKS[index % len(MARKS)]
        medians = [point.p50_ms for point in points]
        axes.plot(rates, medians, color=colour, marker=mark, markersize=4, label=rule)
        tails = [point.p95_ms for point in points]
        axes.plot(rates, tails, color=colour, linewidth=1, linestyle=(0, (3, 2)), alpha=0.7)
    axes.set_yscale("log")
    axes.powers(axes.yaxis)
    axes.set_xlim(left=0)
    axes.label(x="answered a second", y="latency, ms: p50, p95 dashed")
    axes.legend_beside()
    return axes.drawing
