"""Page faults of a call with a memory pool and without it."""

from __future__ import annotations

from ..records import PoolCalls
from .sheet import visible, wrapped
from .style import Drawing, blank


def draw(calls: PoolCalls, *, dark: bool = False) -> Drawing:
    """A bar for the calls without the pool, and one for those with it."""
    drawing, axes, theme = blank("\n".join(wrapped(calls.title, 90)), height=1.7, dark=dark)
    drawing.set_label(visible(calls.title))
    counts = {"without the pool": calls.faults_without, "with the pool": calls.faults_with}
    for row, count in enumerate(counts.values()):
        if count is None:
            continue
        (bar,) = axes.barh(row, count, height=0.6, color=theme.main, alpha=0.85)
        drawing.add_tooltip(bar, f"{count:,.0f} page faults a call")
        axes.annotate(
            f"{count:,.0f}",
            (count, row),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=theme.ink,
            fontsize=9,
        )
    axes.set_yticks(range(len(counts)), list(counts), fontsize=9)
    axes.set_ylim(len(counts) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * max([1.0, *(count for count in counts.values() if count is not None)]))
    axes.set_xlabel("page faults a call", color=theme.ink, fontsize=9)
    return drawing
