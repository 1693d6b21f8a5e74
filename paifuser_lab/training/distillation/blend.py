"""Blends the examples of a batch with each other (mixup): more to train on than there is data,
since the teacher labels any input.

Beyer et al.: "Knowledge distillation: A good teacher is patient and consistent", 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...workload import Inputs


@dataclass(frozen=True)
class Blend:
    """The share of each example in its blend, and the order of the other examples."""

    share: float
    order: Tensor

    def __call__(self, inputs: Inputs) -> Inputs:
        """The blended inputs; integers, such as counts or indices, stay."""
        return inputs.map(
            lambda tensor: (
                torch.lerp(tensor[self.order], tensor, self.share)
                if is_blendable(tensor)
                else tensor
            )
        )

    def loss(self, loss: Callable[[Any, Any], Tensor], output: Any, target: Any) -> Tensor:
        """The loss of an output by the labels of both blended examples."""
        others = pytree.tree_map_only(
            Tensor, lambda tensor: tensor[self.order.to(tensor.device)], target
        )
        return self.share * loss(output, target) + (1 - self.share) * loss(output, others)


def blend_of(inputs: Inputs) -> Blend:
    """A random blend of a batch."""
    first = next(tensor for tensor in inputs.tensors if is_blendable(tensor))
    return Blend(float(torch.rand(())), torch.randperm(len(first), device=first.device))


def is_blendable(tensor: Tensor) -> bool:
    """Whether a tensor holds several examples of floating-point numbers."""
    return tensor.is_floating_point() and tensor.ndim > 1 and len(tensor) > 1
