"""Which channels of which layers go together, for any model that runs, and how they are removed.

channel_ids.py     a union-find over the positions along every dimension of every weight
label_space.py     labels: which channel ids the elements of a tensor depend on
rules/             what each family of ATen operators does to labels
trace_labels.py    one run of the model, operator by operator
grouping.py        classes of channel ids as groups of channels
width_attributes.py  attributes in which layers keep their width
narrow_attention.py  torch's attention with fewer heads
removal.py         removing units, or setting them to zero
remembered.py      the same cut of a fresh model, from the record of the first
proof.py           a cut model compared with the same model with zeros
scores.py          how much each unit matters: the values of `lab.importance`, added up
select.py          which units are removed
product.py, multiplications.py  what the model multiplies, and the channel ids along its sizes
costs/             parameters, FLOPs and other costs as functions of the widths of groups
solve.py           widths with which a cost is reached
cut_notes.py       why a layer keeps its channels, and the notes on a cut
predicted_cost.py  what fewer channels would cost, before any is cut
"""

from __future__ import annotations

from .grouping import Structure, channel_groups, couple
from .predicted_cost import cut_cost
from .remembered import cut_again, cut_and_remember
from .removal import cut, mask

__all__ = [
    "Structure",
    "channel_groups",
    "couple",
    "cut",
    "cut_again",
    "cut_and_remember",
    "cut_cost",
    "mask",
]
