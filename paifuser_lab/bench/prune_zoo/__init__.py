"""Small architectures of our own, each with a trait that pruning trips over; and transformers' own,
built small from their configs.

architecture   what an architecture is, and the registry of all
convolutional  residuals, groups, concatenation, splits, skip connections over scales
layouts        shuffles, transposed convolutions, one and three dimensions, norms, gates
attention      heads by hand and by torch, windows, experts, shared weights
odd            rarely considered: control flow, ties, literals, recurrences, hooks
named          BERT, GPT-2, Llama … where transformers is installed
"""

from __future__ import annotations

from . import attention, convolutional, layouts, named, odd
from .architecture import Architecture, architectures

__all__ = [
    "Architecture",
    "architectures",
    "attention",
    "convolutional",
    "layouts",
    "named",
    "odd",
]
