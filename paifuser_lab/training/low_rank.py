"""Trains additions of low rank to linear layers in place of their weights (LoRA, arXiv:2106.09685),
and adds them to the weights at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from ..errors import StepError
from ..model.layers import is_linear


class LowRank(nn.Module):
    """A weight plus the product of two narrow matrices, which is 0 at first."""

    def __init__(self, weight: Tensor, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = weight.shape
        down = torch.randn(rank, columns, generator=generator) / math.sqrt(columns)
        self.down = nn.Parameter(down.to(weight))
        self.up = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


@contextmanager
def low_rank(model: nn.Module, rank: int, seed: int) -> Iterator[str]:
    """Train additions of this rank to the model's linear layers alone, and fold them in at the end;
    a sentence on what is trained. A weight that layers share stays as it is.
    """
    shared = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    layers: list[Any] = [
        layer for layer in model.modules() if is_linear(layer) and shared[id(layer.weight)] == 1
    ]
    if not layers:
        raise StepError("it has no linear layer with a weight of its own; leave `rank` out.")
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    total = sum(weight.numel() for weight in model.parameters())
    generator = torch.Generator().manual_seed(seed)
    for weight in trainable:
        weight.requires_grad = False
    added = [LowRank(layer.weight, rank, generator) for layer in layers]
    for layer, addition in zip(layers, added, strict=True):
        register_parametrization(layer, "weight", addition)
    count = sum(weight.numel() for addition in added for weight in addition.parameters())
    try:
        yield (
            f"trained {count:,} numbers of additions of rank {rank} to {len(layers)} linear layers "
            f"({count / total:.1%} of its {total:,} weights), and added them to the weights"
        )
    finally:
        for layer in layers:
            remove_parametrizations(layer, "weight")
            bias = layer._parameters.pop("bias")
            layer.register_parameter("bias", bias)  # behind the weight, where it was
        for weight in trainable:
            weight.requires_grad = True
