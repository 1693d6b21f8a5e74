"""Weights in bf16: an update is computed in fp32 and rounded to the weight, so that small ones are
not lost. Built on torch.optim.

A weight in bf16 has 8 bits of precision: an update below 1/512 of it, rounded to the nearest,
changes nothing, and training stalls. Stochastic rounding moves by the update in the mean; Kahan
summation keeps what rounding has lost, in a second bf16 tensor, for the next update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LOW_BITS = 1 << 16  # of a 32-bit float: those that bf16 does not have
NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def to_bf16_weights(model: nn.Module) -> dict[nn.Parameter, Tensor | None]:
    """Store the weights that a model trains in bf16, in place, and return those with their values
    in fp32; norms keep theirs, which mixed operators expect in fp32.
    """
    narrowed: dict[nn.Parameter, Tensor | None] = {}
    for module in model.modules():
        if not isinstance(module, NORMS):
            for weight in module.parameters(recurse=False):
                if weight.requires_grad and weight.dtype == torch.float32:
                    narrowed[weight] = weight.data
                    weight.data = weight.data.to(torch.bfloat16)
    return narrowed


def stochastically_rounded(values: Tensor) -> Tensor:
    """fp32 values in bf16: each to one of its two neighbours, the nearer the likelier, so that the
    mean is kept. Draws from torch's generator.
    """
    bits = values.contiguous().view(torch.int32)
    noise = torch.randint(0, LOW_BITS, values.shape, dtype=torch.int32, device=values.device)
    rounded = ((bits + noise) & -LOW_BITS).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).to(torch.bfloat16)


class RoundedOptimizer:
    """An optimizer of weights in bf16: each weight is updated in fp32 by torch's own optimizer, and
    rounded. Only one weight at a time has a copy in fp32.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        rounding: str,
    ) -> None:
        self.weights: list[nn.Parameter] = [
            weight for group in groups for weight in group["params"]
        ]
        self.rounding = rounding
        self.lost: dict[int, Tensor] = {}  # by Kahan's summation: index of the weight → remainder
        self._shells = [nn.Parameter(torch.empty(0, device=w.device)) for w in self.weights]
        shells = iter(self._shells)
        self.inner = make(
            [{**group, "params": [next(shells) for _ in group["params"]]} for group in groups]
        )

    def step(self) -> None:
        """Update every weight that has a gradient."""
        for index, (weight, shell) in enumerate(zip(self.weights, self._shells, strict=True)):
            if weight.grad is None:
                continue
            shell.data = weight.detach().float()
            if index in self.lost:
                shell.data += self.lost[index]
            shell.grad = weight.grad.float()
            self.inner.step()  # the other shells have no gradient
            self._write(index, weight, shell.data)
            shell.grad, shell.data = None, torch.empty(0, device=weight.device)

    def _write(self, index: int, weight: nn.Parameter, updated: Tensor) -> None:
        if weight.dtype != torch.bfloat16:
            weight.data.copy_(updated)
        elif self.rounding == "stochastic":
            weight.data.copy_(stochastically_rounded(updated))
        else:
            weight.data.copy_(updated)
            if self.rounding == "kahan":
                self.lost[index] = (updated - weight.detach().float()).to(torch.bfloat16)
