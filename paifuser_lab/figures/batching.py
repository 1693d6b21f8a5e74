"""Throughput, latency and memory by batch size; latency against throughput of dynamic batching."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from ..records import BatchingCurve, BatchSweep, readable_bytes
from ..records.text import readable_rate
from .style import Drawing, Theme, blank, legend_beside

Points = list[tuple[int, float]]


def draw(sweep: BatchSweep, *, dark: bool = False) -> Drawing:
    """Throughput above, latency and memory below."""
    drawing, top, theme = blank(sweep.title, height=4.6, dark=dark)
    grid = GridSpec(2, 2, figure=drawing, height_ratios=(3, 2))
    top.set_subplotspec(grid[0, :])
    latency, memory = (drawing.add_subplot(grid[1, side], facecolor=theme.paper) for side in (0, 1))
    _draw_throughput(top, sweep, theme)
    _draw_cost(
        latency,
        sweep,
        theme,
        [(row.batch, row.latency_ms or 0.0) for row in sweep.ran],
        "latency, ms",
        readable_rate,
    )
    _draw_cost(
        memory,
        sweep,
        theme,
        [(row.batch, float(row.peak_bytes or 0)) for row in sweep.ran],
        "memory",
        _bytes,
    )
    _draw_limit(memory, sweep, theme)
    latency.set_xlabel("batch size", color=theme.ink, fontsize=9)
    memory.set_xlabel("batch size", color=theme.ink, fontsize=9)
    return drawing


def _draw_throughput(axes: Axes, sweep: BatchSweep, theme: Theme) -> None:
    rates = [(row.batch, row.throughput_per_s or 0.0) for row in sweep.ran]
    best, knee = sweep.best, sweep[sweep.knee]
    top, at_knee = best.throughput_per_s or 0.0, knee.throughput_per_s or 0.0
    axes.axhline(sweep.plateau * top, color=theme.faint, linewidth=1, linestyle=(0, (4, 3)))
    # whether the knee is right of the middle; labels go to the other side
    is_right = knee.batch**2 > sweep.rows[0].batch * sweep.rows[-1].batch
    axes.annotate(
        f"{sweep.plateau:.0%} of the best",
        (0.0 if is_right else 1.0, sweep.plateau * top),
        (0, 3 if is_right else -3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="left" if is_right else "right",
        va="bottom" if is_right else "top",
        color=theme.ink,
        fontsize=8,
    )
    axes.plot(*zip(*rates, strict=True), color=theme.main, linewidth=1.8, marker="o", markersize=4)
    axes.plot(
        [knee.batch],
        [at_knee],
        marker="o",
        markersize=12,
        color=theme.good,
        markerfacecolor="none",
        markeredgewidth=2,
    )
    _scale_batches(axes, sweep, theme)
    axes.plot(
        [knee.batch, knee.batch],
        [0, at_knee],
        color=theme.good,
        linewidth=1.2,
        linestyle=(0, (1, 2)),
    )
    label = f"batch {knee.batch} · {readable_rate(at_knee)} a second"
    axes.annotate(
        label,
        (knee.batch, 0),
        (-7 if is_right else 7, 4),
        textcoords="offset points",
        ha="right" if is_right else "left",
        color=theme.ink,
        fontsize=9.5,
        fontweight="bold",
    )
    axes.set_ylim(0, 1.15 * max(rate for _, rate in rates))
    axes.set_ylabel("examples a second", color=theme.ink, fontsize=9)


def _draw_cost(
    axes: Axes,
    sweep: BatchSweep,
    theme: Theme,
    points: Points,
    label: str,
    readable: Callable[[float], str],
) -> None:
    """Draw latency or memory on a logarithmic scale, with the knee marked."""
    axes.plot(*zip(*points, strict=True), color=theme.main, linewidth=1.5, marker="o", markersize=3)
    knee = dict(points)[sweep.knee]
    axes.plot(
        [sweep.knee],
        [knee],
        marker="o",
        markersize=9,
        color=theme.good,
        markerfacecolor="none",
        markeredgewidth=1.6,
    )
    axes.annotate(readable(knee), (sweep.knee, knee), (5, -5), textcoords="offset points", va="top",
                  color=theme.ink, fontsize=8.5)  # fmt: skip
    axes.set_yscale("log")
    low, high = min(value for _, value in points), max(value for _, value in points)
    axes.set_ylim(low / 1.6, 2.2 * high)
    _scale_cost(axes, readable)
    _scale_batches(axes, sweep, theme)
    axes.set_ylabel(label, color=theme.ink, fontsize=9)


def _draw_limit(axes: Axes, sweep: BatchSweep, theme: Theme) -> None:
    """Draw the limit, and the predicted memory of batches that were skipped because of it."""
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
    axes.annotate(
        f"limit {readable_bytes(limit)}",
        (0.02, limit),
        (0, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=theme.ink,
        fontsize=8,
    )
    if refused:
        axes.plot(
            *zip(*refused, strict=True), color=theme.bad, linestyle="none", marker="x", markersize=5
        )


def _scale_cost(axes: Axes, readable: Callable[[float], str]) -> None:
    """Set a few ticks with readable labels."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,), numticks=6)
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def _scale_batches(axes: Axes, sweep: BatchSweep, theme: Theme) -> None:
    """Set a logarithmic scale of base 2, with each measured power of two labelled."""
    batches = [row.batch for row in sweep.rows]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(batches) / 1.25, max(batches) * 1.25)
    powers = [batch for batch in batches if batch & (batch - 1) == 0] or [sweep.knee]
    axes.set_xticks(powers, [str(batch) for batch in powers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)


def _bytes(value: float) -> str:
    return readable_bytes(int(value))


MARKS = ("o", "s", "^", "D", "v", "P")


def draw_curve(curve: BatchingCurve, *, dark: bool = False) -> Drawing:
    """The median of each rule at each rate, and the 95th percentile above it, fainter."""
    drawing, axes, theme = blank(curve.title, height=3.4, dark=dark)
    colours = (theme.soft, theme.main, theme.good, theme.memory, theme.overhead, theme.bad)
    for index, (rule, points) in enumerate(curve.rules.items()):
        rates = [point.answered_per_s for point in points]
        colour, mark = colours[index % len(colours)], MARKS[index % len(MARKS)]
        medians = [point.p50_ms for point in points]
        axes.plot(rates, medians, color=colour, marker=mark, markersize=4, label=rule)
        tails = [point.p95_ms for point in points]
        axes.plot(rates, tails, color=colour, linewidth=1, linestyle=(0, (3, 2)), alpha=0.7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(left=0)
    axes.set_xlabel("answered a second", color=theme.ink, fontsize=9)
    axes.set_ylabel("latency, ms: p50, p95 dashed", color=theme.ink, fontsize=9)
    legend_beside(axes, theme)
    return drawing
