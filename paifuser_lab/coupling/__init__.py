"""Which channels of which layers go together, for any model that runs, and how they are removed.

atoms.py       a union-find over the places of every weight's dimensions
space.py       labels: what the elements of a tensor are made of, and what rules do with them
rules/         what each family of operators does to labels
tracing.py     one run of the model, operator by operator
grouping.py    classes of atoms as groups of channels
following.py   numbers that layers keep about their width
narrow_attention.py  torch's attention with fewer heads
cutting.py     removing units, or setting them to zero
proving.py     a cut model against the same model with zeros
choosing.py    which units go
scores.py      how much a unit matters
"""

from __future__ import annotations

from .cutting import cut, mask
from .grouping import Structure, channel_groups, couple

__all__ = ["Structure", "channel_groups", "couple", "cut", "mask"]
