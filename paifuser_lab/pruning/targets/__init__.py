"""Choose the widths that leave a given share of a model's parameters, FLOPs or latency.

layer_families.py  layers that take equally long at equal widths, and a call of one at any width
measure.py         staircases (time by width), from the cache or measured now; one as a record
whole_model.py     the time of the whole model: original, current, and as narrow as allowed
latency.py         the model's time as a function of its groups' widths
target.py          the widths for a share of the original's cost, and what is achieved
"""

from .measure import staircase, stairs
from .target import (
    ChosenWidths,
    Goal,
    Target,
    WidthOptions,
    choose_widths,
    fewest_units,
    target_notes,
)

__all__ = [
    "ChosenWidths",
    "Goal",
    "Target",
    "WidthOptions",
    "choose_widths",
    "fewest_units",
    "staircase",
    "stairs",
    "target_notes",
]
