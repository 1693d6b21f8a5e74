"""Small architectures of our own, each with a trait that pruning trips over; and transformers' own,
built small from their configs.

convolutional.py   residuals, groups, concatenation, splits, shuffles, norms, one to three
dimensions attention.py       heads by hand and by torch, windows, experts, shared weights odd.py
what is seldom thought of: control flow, ties, literals, recurrences, hooks named.py           BERT,
GPT-2, Llama … where transformers is installed
"""

from __future__ import annotations

from . import attention, convolutional, named, odd
from .architecture import Architecture, architectures

__all__ = ["Architecture", "architectures", "attention", "convolutional", "named", "odd"]
