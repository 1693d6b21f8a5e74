"""Which recipe to take: chosen from what the hardware can do, and from measuring the few that could
win.

plan             a recipe for this hardware plan_precision   a format for each layer, within
a budget; `recipe_of` its recipe, `achieved` the proof
"""

from __future__ import annotations

from .hardware_plan import plan
from .precision import achieved, plan_precision, recipe_of

__all__ = ["achieved", "plan", "plan_precision", "recipe_of"]
