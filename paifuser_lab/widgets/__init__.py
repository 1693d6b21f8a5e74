"""Panels for a notebook: the whole workbench, and each view alone. One file a panel here, one
module a view in `widgets/`.
"""

from __future__ import annotations

from ..recipe import Recipe
from ..records import Allocation, AttentionCost, Importance, Record, Sensitivity
from .allocation_panel import AllocationPanel
from .attention_panel import AttentionPanel
from .importance_panel import ImportancePanel
from .panel import Panel
from .recipe_panel import RecipePanel
from .sensitivity_panel import SensitivityPanel
from .workbench import Workbench

__all__ = ["Panel", "Workbench", "show"]

VIEWS = {
    "Allocation": "allocation",
    "AttentionCost": "attention",
    "BatchSweep": "curve",
    "Comparison": "comparison",
    "Coupling": "coupling",
    "Explanation": "explanation",
    "FusionMap": "fusion",
    "Hardware": "hardware",
    "Importance": "importance",
    "MemoryTimeline": "memory",
    "Profile": "layers",
    "Roofline": "roofline",
    "Sensitivity": "sensitivity",
    "SideBySide": "side_by_side",
}


def show(record: Record | Recipe) -> Panel:
    """The widget of a record, with its figure inside it for where no widget can live."""
    if isinstance(record, Recipe):
        return RecipePanel(record)
    if isinstance(record, Sensitivity):
        return SensitivityPanel(record)
    if isinstance(record, Importance):
        return ImportancePanel(record)
    if isinstance(record, Allocation):
        return AllocationPanel(record)
    if isinstance(record, AttentionCost):
        return AttentionPanel(record)
    name = type(record).__name__
    if name not in VIEWS:
        raise TypeError(
            f"There is no widget for a {name}; there are widgets for {', '.join(VIEWS)} and Recipe."
        )
    return Panel(VIEWS[name], record)
