"""Choose a recipe: by the hardware's speed in each format, and by measuring the candidates.

hardware_plan  `plan`: a recipe for this hardware
precision/     `plan_precision`: a format for each layer within a budget; `recipe_of` its recipe,
               `achieved` measures chosen points
"""

from __future__ import annotations

from .hardware_plan import plan
from .precision import achieved, plan_precision, recipe_of

__all__ = ["achieved", "plan", "plan_precision", "recipe_of"]
