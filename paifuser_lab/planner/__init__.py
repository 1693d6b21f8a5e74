"""Choose a recipe: by the hardware's speed in each format, and by measuring the candidates.

candidates     what may make a model faster or smaller here
search         `faster`: measures the candidates one by one and ranks them
ranking        the options of a search, and the order of its candidates
hardware_plan  `plan`: a recipe for this hardware
precision/     `plan_precision`: a format for each layer within a budget, `plan_shares` within
               shares of fp32; `recipe_of` its recipe, `achieved` measures chosen points
"""

from __future__ import annotations

from .hardware_plan import plan
from .precision import achieved, plan_precision, plan_shares, recipe_of
from .ranking import Options as SearchOptions
from .search import faster

__all__ = [
    "SearchOptions",
    "achieved",
    "faster",
    "plan",
    "plan_precision",
    "plan_shares",
    "recipe_of",
]
