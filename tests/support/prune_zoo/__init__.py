"""Small architectures of our own, each with a property that is difficult to prune, and models of
transformers, built small from their configs.

architecture   what an architecture is, and the registry of all
convolutional  residuals, groups, concatenation, splits, skip connections over scales
layouts        shuffles, transposed convolutions, one and three dimensions, norms, gates
attention      heads composed by hand and by torch, windows, experts, shared weights
odd            unusual structures: control flow, ties, literals, recurrences, hooks
named          BERT, GPT-2, Llama … if transformers is installed
"""

from __future__ import annotations

from tests.support.prune_zoo import attention, convolutional, layouts, named, odd
from tests.support.prune_zoo.architecture import Architecture, architectures

__all__ = [
    "Architecture",
    "architectures",
    "attention",
    "convolutional",
    "layouts",
    "named",
    "odd",
]
