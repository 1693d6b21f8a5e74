"""Attention in other ways: to a part of the keys, or within a Swin's windows in one pass.

keeping.py          how much of the keys, by what rule
finding.py          which layers attend, and to what, seen in one run
listing.py          which blocks of keys each block of queries attends to
fixing.py           those lists made once, from the data there is
masks.py            what a mask hides
attention.py        torch's attention, called as it is called, to a part of the keys
redirecting.py      a layer whose attention is that one
torch_attention.py  nn.MultiheadAttention, so that its attention can be seen
windows/            Swin's attention in one pass
grafting.py         how a layer runs otherwise under its own name
judging.py          what it changes, and what it takes
cost.py             what each share of the keys costs and brings, as a record
"""

from __future__ import annotations

from .cost import attention_cost
from .discover import Attending, Call, find_attention, record_calls
from .evaluate import Judged, exact, judge_layers, judge_sparse
from .redirect import make_dense, make_sparse
from .sparsity import Keeping
from .static_lists import lists_from_data
from .torch_attention import packs_texts
from .windows import is_fused, is_windowed, make_fused

__all__ = [
    "Attending",
    "Call",
    "Judged",
    "Keeping",
    "attention_cost",
    "exact",
    "find_attention",
    "is_fused",
    "is_windowed",
    "judge_layers",
    "judge_sparse",
    "lists_from_data",
    "make_dense",
    "make_fused",
    "make_sparse",
    "packs_texts",
    "record_calls",
]
