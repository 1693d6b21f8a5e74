"""Choose a recipe: by the hardware's speed in each format, and by measuring the candidates.

searching      `search`: the best recipe within limits; `searches` yields it as it goes
space          what a search may change, axis by axis
predict        what combinations are expected to reach, by their parts
store          where the trials of searches and the runs of sweeps are kept
contributions  what each step of the best recipe contributes, left out in turn
halves         test data to choose by, and test data that judge
ranking        the options of a search, and the order of its candidates
result         the record of a search, and its recipes
plans          `plan`: the exact part of the space, timed in turn, the nearest to the fastest twice
precision/     `plan_precision`: a format for each layer within a budget, `plan_shares` within
               shares of fp32; `recipe_of` its recipe, `achieved` measures chosen points
"""

from __future__ import annotations

from .plans import plan
from .precision import achieved, plan_precision, plan_shares, recipe_of
from .ranking import Options as SearchOptions
from .result import SearchResult
from .searching import search, searches

__all__ = [
    "SearchOptions",
    "SearchResult",
    "achieved",
    "plan",
    "plan_precision",
    "plan_shares",
    "recipe_of",
    "search",
    "searches",
]
