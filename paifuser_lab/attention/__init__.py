"""Faster attention: to some blocks of the keys, or within a Swin's windows in one pass.

sparsity         how many blocks of keys are attended to, and by what rule
discover         which layers call torch's attention, and with what, in one run
block_lists      which blocks of keys each block of queries attends to
static_lists     those lists made once, from data
masks            what a mask hides
attention        torch's attention, with its signature, to some blocks of the keys
redirect         a layer whose attention is that one
torch_attention  nn.MultiheadAttention, so that its attention can be redirected
windows/         Swin's attention in one pass
subclassing      how a layer runs otherwise under its own name and weights
evaluate         the error and the time of changed layers
cost             the error, latency and metric at each share of the keys, as a record
"""

from __future__ import annotations

from .cost import attention_cost
from .discover import Attending, Call, find_attention, record_calls
from .evaluate import Evaluated, evaluate_layers, evaluate_sparse, exact
from .redirect import make_dense, make_sparse
from .sparsity import Sparsity
from .static_lists import lists_from_data
from .torch_attention import packs_texts
from .windows import is_fused, is_windowed, make_fused

__all__ = [
    "Attending",
    "Call",
    "Evaluated",
    "Sparsity",
    "attention_cost",
    "evaluate_layers",
    "evaluate_sparse",
    "exact",
    "find_attention",
    "is_fused",
    "is_windowed",
    "lists_from_data",
    "make_dense",
    "make_fused",
    "make_sparse",
    "packs_texts",
    "record_calls",
]
