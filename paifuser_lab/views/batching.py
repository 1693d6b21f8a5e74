"""Latency against throughput of dynamic batching."""

from __future__ import annotations

from ..records import BatchingCurve
from .style import Drawing, blank

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
