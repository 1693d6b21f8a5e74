"""Drawings of records: one function a kind of record, in light or dark, for notebooks, reports and
papers. Stands on matplotlib.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from ..records import Record
from .style import Drawing

__all__ = ["Drawing", "figure"]

DRAWERS = {
    "Allocation": ".allocation:draw",
    "AttentionCost": ".attention_cost:draw",
    "BatchSweep": ".batch_sweep:draw",
    "Comparison": ".comparison:draw",
    "FusionMap": ".fusion_map:draw",
    "Hardware": ".hardware:draw",
    "Importance": ".importance:draw",
    "MemoryTimeline": ".memory:draw",
    "Profile": ".profile:draw",
    "Roofline": ".roofline:draw",
    "Sensitivity": ".sensitivity:draw",
    "SideBySide": ".side_by_side:draw",
    "Staircase": ".staircase:draw",
    "TraceSummary": ".trace:draw",
    "TradeOff": ".trade_off:draw",
}


def figure(record: Record, *, dark: bool = False) -> Drawing:
    """The matplotlib figure of a record; it shows itself in a notebook, and `savefig` writes SVG or
    PNG.
    """
    name = type(record).__name__
    if name not in DRAWERS:
        raise TypeError(
            f"There is no drawing of a {name}; there are drawings of {', '.join(DRAWERS)}."
        )
    module, _, function = DRAWERS[name].partition(":")
    draw = partial(getattr(import_module(module, __name__), function), record)
    drawn: Drawing = draw(dark=dark)
    drawn.redraw = None if dark else draw
    return drawn
