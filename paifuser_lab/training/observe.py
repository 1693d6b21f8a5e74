"""A step's gradients: their length, their range by layer, and what 16 bits lose of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..model.tensors import tensors_in
from ..records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH

SMALLEST_NORMAL = torch.finfo(torch.float16).smallest_normal


@dataclass(frozen=True)
class Shares:
    """Shares of the scaled gradient: not finite, and zero or below fp16's normal numbers."""

    overflow: float = 0.0
    underflow: float = 0.0


def shares_of(weights: Iterable[Tensor]) -> Shares:
    """What fp16 loses of the weights' gradients as they are, which is scaled."""
    count = overflow = underflow = 0
    for weight in weights:
        if weight.grad is not None:
            sizes = weight.grad.detach().abs()
            count += sizes.numel()
            overflow += sizes.numel() - int(sizes.isfinite().sum())
            underflow += int((sizes < SMALLEST_NORMAL).sum())
    return Shares(overflow / count, underflow / count) if count else Shares()


def range_layers(model: nn.Module) -> list[str]:
    """The layers with weights of their own that are trained."""
    return [
        name
        for name, module in model.named_modules()
        if any(weight.requires_grad for weight in module.parameters(recurse=False))
    ]


def ranges_of(model: nn.Module, layers: Iterable[str]) -> Tensor:
    """For each layer, how many of its gradient's elements are zero, and how many have each size: a
    row a layer, whose bins are those of the record `TrainingRun`.
    """
    return torch.stack([_counts(model.get_submodule(layer)) for layer in layers])


def _counts(layer: nn.Module) -> Tensor:
    counts = torch.zeros(RANGE_BINS + 1, dtype=torch.int64)
    for weight in layer.parameters(recurse=False):
        if weight.requires_grad:
            sizes = (
                torch.zeros(weight.numel())
                if weight.grad is None
                else weight.grad.detach().float().abs().flatten()
            )
            counts[0] += int((sizes == 0).sum())
            used = sizes[(sizes > 0) & sizes.isfinite()]
            exponents = torch.frexp(used).exponent.to(torch.int64)
            bins = torch.div(exponents - LOWEST_EXPONENT, RANGE_WIDTH, rounding_mode="floor")
            bins = bins.clamp(0, RANGE_BINS - 1)
            counts[1:] += torch.bincount(bins, minlength=RANGE_BINS).cpu()
    return counts


def layer_of_bad_gradient(model: nn.Module) -> str | None:
    """The last layer of the model whose gradient is not finite: the backward pass comes to it
    first.
    """
    bad = [
        name.rpartition(".")[0]
        for name, weight in model.named_parameters()
        if weight.grad is not None and not bool(weight.grad.isfinite().all())
    ]
    return bad[-1] if bad else None


def is_not_finite(values: object) -> bool:
    """Whether any tensor has a NaN or an infinity."""
    floats = (leaf for leaf in tensors_in(values) if leaf.is_floating_point())
    return not all(bool(leaf.isfinite().all()) for leaf in floats)
