"""Which channels of which layers go together, for any model that runs, and how they are removed.

atoms.py       a union-find over the places of every weight's dimensions
space.py       labels: what the elements of a tensor are made of, and what rules do with them
rules/         what each family of operators does to labels
tracing.py     one run of the model, operator by operator
grouping.py    classes of atoms as groups of channels
following.py   numbers that layers keep about their width
narrow_attention.py  torch's attention with fewer heads
cutting.py     removing units, or setting them to zero
remembering.py the same cut of a fresh model, from what the first one took
proving.py     a cut model against the same model with zeros
foretelling.py what fewer channels would cost, before any is cut
choosing.py    which units go
product.py     one multiplication, with the atoms along its sizes
multiplying.py what the model multiplies
costs/         parameters, FLOPs and whatever else, by the widths of groups
reaching.py    widths with which a cost is reached
scores.py      how much a unit matters
"""

from __future__ import annotations

from .grouping import Structure, channel_groups, couple
from .predicted_cost import cut_cost
from .remembered import cut_again, cut_and_tell
from .removal import cut, mask

__all__ = [
    "Structure",
    "channel_groups",
    "couple",
    "cut",
    "cut_again",
    "cut_and_tell",
    "cut_cost",
    "mask",
]
