"""Faster attention: to some blocks of the keys, or within a Swin's windows in one pass.

discover         the layers that call torch's attention, the inputs of the calls in one run, and
                 fixed lists computed once from them
block_lists      the blocks of keys that each block of queries attends to: how many, by which rule,
                 and what a mask hides of them
attention        sparse attention with the signature of torch's
redirect         a layer that calls it in place of torch's
windows          Swin's attention in one pass
subclassing      changes a layer's forward, but not its name and weights
evaluate         the error and the time of changed layers
cost             the error, latency and metric at each share of the keys, as a record
"""

from .block_lists import Sparsity
from .cost import attention_cost
from .discover import Attending, find_attention, lists_from_data
from .evaluate import evaluate_layers, evaluate_sparse, exact
from .redirect import drops_padding, make_dense, make_sparse
from .windows import is_fused, is_windowed, make_fused

__all__ = [
    "Attending",
    "Sparsity",
    "attention_cost",
    "drops_padding",
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
]
