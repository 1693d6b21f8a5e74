"""The reference for a pruned model, computed without the pruning code: which channels were removed
follows from the values of the remaining weights.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from paifuser_lab.errors import MeasureError
from paifuser_lab.model.layers import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, is_transposed_linear
from paifuser_lab.model.tensors import tensors_in
from paifuser_lab.workload import Inputs, running

PLAIN = (nn.Linear, *CONVOLUTIONS)


def masked(original: nn.Module, pruned: nn.Module) -> nn.Module:
    """The original with zeros in the channels that the pruned model lacks."""
    copied = copy.deepcopy(original)
    smaller = _weights(pruned)
    with torch.no_grad():
        for name, weight in _weights(copied).items():
            for dim, kept in enumerate(kept_indices(weight, smaller[name])):
                removed = sorted(set(range(weight.shape[dim])) - set(kept))
                if removed and _is_output_dim(copied, name, dim):
                    weight.index_fill_(dim, torch.tensor(removed), 0)
    return copied


def kept_indices(weight: Tensor, smaller: Tensor) -> list[list[int]]:
    """The remaining indices of each dimension; raises if the weight was changed otherwise."""
    if weight.shape == smaller.shape:
        if not torch.equal(weight, smaller):
            raise MeasureError("A weight that kept its shape has changed.")
        return [list(range(size)) for size in weight.shape]
    values, inverse, counts = torch.unique(weight.detach(), return_inverse=True, return_counts=True)
    first = torch.empty(len(values), dtype=torch.int64).scatter_(
        0, inverse.flatten(), torch.arange(weight.numel())
    )
    position = torch.searchsorted(values, smaller.detach().flatten()).clamp(max=len(values) - 1)
    if not torch.equal(values[position], smaller.detach().flatten()):
        raise MeasureError("A pruned weight has values that the original does not have.")
    flat = first[position[counts[position] == 1]]
    kept = [sorted(set(row.tolist())) for row in torch.unravel_index(flat, weight.shape)]
    if not torch.equal(weight[torch.meshgrid(*map(torch.tensor, kept), indexing="ij")], smaller):
        raise MeasureError("The elements of a pruned weight are out of order.")
    return kept


def gap(one: nn.Module, other: nn.Module, inputs: Inputs) -> float:
    """The largest difference of the outputs in float64, relative to each output's largest value."""
    doubled = inputs.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    left, right = (_tensors(copy.deepcopy(model).double(), doubled) for model in (one, other))
    if [a.shape for a in left] != [b.shape for b in right]:
        raise MeasureError("The outputs have different shapes.")
    return max(
        float((a - b).abs().max() / a.abs().max().clamp(min=1e-9))
        for a, b in zip(left, right, strict=True)
    )


def _tensors(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    with running(model):
        return tensors_in(inputs.clone()(model))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


def _is_output_dim(model: nn.Module, name: str, dim: int) -> bool:
    """Whether an index along this dimension is an output channel; for weights outside known layers
    every dimension counts as one.
    """
    layer, _, leaf = name.rpartition(".")
    module = model.get_submodule(layer)
    if leaf in dict(module.named_buffers(recurse=False)):
        return leaf == "running_mean"
    if leaf == "weight" and isinstance(module, TRANSPOSED_CONVOLUTIONS):
        return dim == 1 or module.groups > 1
    if leaf == "weight" and (isinstance(module, nn.Embedding) or is_transposed_linear(module)):
        return dim == 1
    return dim == 0 or not isinstance(module, PLAIN)
