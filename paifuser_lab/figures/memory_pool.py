"""Page faults of a call with a memory pool and without it."""

from __future__ import annotations

from ..records import PoolCalls
from .bar_rows import BarRow, Part, draw_bar_rows
from .sheet import visible, wrapped
from .style import Drawing, blank


def draw(calls: PoolCalls, *, dark: bool = False) -> Drawing:
    """A bar for the calls without the pool, and one for those with it."""
    drawing, axes, theme = blank("\n".join(wrapped(calls.title, 90)), height=1.7, dark=dark)
    drawing.set_label(visible(calls.title))
    counts = {"without the pool": calls.faults_without, "with the pool": calls.faults_with}
    rows = []
    for name, count in counts.items():
        text = "" if count is None else f"{count:,.0f}"
        tooltip = f"{text} page faults a call"
        parts = () if count is None else (Part(count, theme.main, tooltip),)
        rows.append(BarRow(name, parts, text))
    draw_bar_rows(drawing, axes, theme, rows)
    axes.set_xlim(0, 1.2 * max([1.0, *(count for count in counts.values() if count is not None)]))
    axes.set_xlabel("page faults a call", color=theme.ink, fontsize=9)
    return drawing
