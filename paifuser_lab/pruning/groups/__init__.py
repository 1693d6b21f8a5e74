"""Which channels of which layers go together, for any model that runs, and how they are removed.

channel_ids.py     a union-find over the positions along every dimension of every weight
label_space.py     labels: which channel ids the elements of a tensor depend on
rules/             what each family of ATen operators does to labels
trace_labels.py    one run of the model, operator by operator
grouping.py        classes of channel ids as groups of channels
width_attributes.py  attributes in which layers keep their width
narrow_attention.py  torch's attention with fewer heads
removal.py         removing units, or setting them to zero, and the same cut of a fresh model
proof.py           check a cut model against the same model with zeros
scores.py          the importance of each unit: the values of `lab.importance`, added up
widths.py          which units are removed: by a share, or until a cost is reached
multiplications.py  convolutions and matrix products with the channel ids along them
costs.py           parameters, FLOPs and other costs as functions of the widths of groups
cut_notes.py       why a layer keeps its channels, and the notes on a cut
predicted_cost.py  the predicted cost of fewer channels, before any cut
"""

from .grouping import CutProblem, Structure, channel_groups, couple
from .predicted_cost import cut_cost
from .removal import cut, cut_again, cut_and_remember

__all__ = [
    "CutProblem",
    "Structure",
    "channel_groups",
    "couple",
    "cut",
    "cut_again",
    "cut_and_remember",
    "cut_cost",
]
