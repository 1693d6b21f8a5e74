"""Which recipe to use: from what the hardware can do, and by measuring the few that could win.

hardware_plan  `plan`: a recipe for this hardware
precision/     `plan_precision`: a format for each layer within a budget; `recipe_of` its recipe,
               `achieved` the point measured
"""

from __future__ import annotations

from .hardware_plan import plan
from .precision import achieved, plan_precision, recipe_of

__all__ = ["achieved", "plan", "plan_precision", "recipe_of"]
