"""Latency against throughput of dynamic batching, a line for each rule."""

from __future__ import annotations

from matplotlib.ticker import FuncFormatter, NullFormatter

from ..records import BatchingCurve
from .style import Drawing, blank, legend_beside

MARKS = ("o", "s", "^", "D", "v", "P")


def draw(curve: BatchingCurve, *, dark: bool = False) -> Drawing:
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
