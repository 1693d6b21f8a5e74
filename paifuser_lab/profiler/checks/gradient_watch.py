"""Count values of the gradients that optimizers use; only counts are kept, on their device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

FP16_SMALLEST = 2.0**-24  # 6e-8: half of it rounds to zero
FP16_LARGEST = 65504.0


@dataclass(frozen=True)
class GradientCounts:
    """Counts over one parameter's gradients in all steps."""

    values: int
    broken: int  # inf or NaN
    vanishing: int  # too small for fp16, and not zero
    exceeding: int  # too large for fp16
    zeros: int


@dataclass
class GradientWatch:
    """Counts for every parameter that an optimizer stepped with."""

    steps: Counter[int] = field(default_factory=Counter)  # by optimizer
    counts: dict[int, Tensor] = field(default_factory=dict)  # by parameter
    # referenced, so that no other object reuses their id
    parameters: dict[int, Tensor] = field(default_factory=dict)

    def count(self, optimizer: Optimizer) -> None:
        """Count the values of all gradients that this step will use."""
        self.steps[id(optimizer)] += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    counts = _counted(parameter.grad)
                    before = self.counts.get(id(parameter))
                    self.parameters[id(parameter)] = parameter
                    self.counts[id(parameter)] = counts if before is None else before + counts

    def by_name(self, models: list[nn.Module]) -> dict[str, GradientCounts]:
        """The counts under the names that the models give their parameters."""
        names = {
            id(parameter): name for model in models for name, parameter in model.named_parameters()
        }
        return {
            names.get(
                key, f"a parameter of shape {tuple(self.parameters[key].shape)} (number {index})"
            ): GradientCounts(*counts.tolist())
            for index, (key, counts) in enumerate(self.counts.items(), 1)
        }


@torch.no_grad()
def _counted(gradient: Tensor) -> Tensor:
    values = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    values = values.coalesce().values() if values.is_sparse else values
    size = values.abs()
    finite = torch.isfinite(size)
    zeros = size == 0
    masks = [~finite, (size < FP16_SMALLEST) & ~zeros, (size > FP16_LARGEST) & finite, zeros]
    return torch.stack(
        [torch.full_like(finite, True, dtype=torch.int64).sum(), *(mask.sum() for mask in masks)]
    )
