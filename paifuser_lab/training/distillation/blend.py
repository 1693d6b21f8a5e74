"""Pictures blended with others of their batch: more to learn from than there is data, since the
teacher answers whatever it is shown.

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
    """How much of each example is itself, and which other the rest is."""

    share: float
    order: Tensor

    def __call__(self, inputs: Inputs) -> Inputs:
        """Floating-point values are blended; integers, which count or name, stay."""
        return inputs.map(
            lambda tensor: (
                torch.lerp(tensor[self.order], tensor, self.share)
                if is_blendable(tensor)
                else tensor
            )
        )

    def loss(self, loss: Callable[[Any, Any], Tensor], answer: Any, target: Any) -> Tensor:
        """What the answer would lose by the labels of the one and of the other."""
        others = pytree.tree_map_only(
            Tensor, lambda tensor: tensor[self.order.to(tensor.device)], target
        )
        return self.share * loss(answer, target) + (1 - self.share) * loss(answer, others)


def blend_of(inputs: Inputs) -> Blend:
    """A blend of a batch, drawn at random."""
    first = next(tensor for tensor in inputs.tensors if is_blendable(tensor))
    return Blend(float(torch.rand(())), torch.randperm(len(first), device=first.device))


def is_blendable(tensor: Tensor) -> bool:
    """Whether it holds several examples in numbers."""
    return tensor.is_floating_point() and tensor.ndim > 1 and len(tensor) > 1
