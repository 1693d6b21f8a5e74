"""What a pruned model has to equal, found without the pruning code: from the weights that are left,
by their values.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import MeasureError
from ..model.layers import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, is_transposed_linear
from ..workload import Inputs, running

PLAIN = (nn.Linear, *CONVOLUTIONS)


def masked(original: nn.Module, pruned: nn.Module) -> nn.Module:
    """The original with zeros in the rows that the pruned model has lost, and nowhere else."""
    copied = copy.deepcopy(original)
    smaller = _weights(pruned)
    with torch.no_grad():
        for name, weight in _weights(copied).items():
            for dim, kept in enumerate(kept_places(weight, smaller[name])):
                gone = sorted(set(range(weight.shape[dim])) - set(kept))
                if gone and _makes(copied, name, dim):
                    weight.index_fill_(dim, torch.tensor(gone), 0)
    return copied


def kept_places(weight: Tensor, smaller: Tensor) -> list[list[int]]:
    """For each dimension which places are left; an error where anything else was done to the
    weight.
    """
    if weight.shape == smaller.shape:
        if not torch.equal(weight, smaller):
            raise MeasureError("A weight that kept its shape has changed.")
        return [list(range(size)) for size in weight.shape]
    values, places, counts = torch.unique(weight.detach(), return_inverse=True, return_counts=True)
    first = torch.empty(len(values), dtype=torch.int64).scatter_(
        0, places.flatten(), torch.arange(weight.numel())
    )
    found = torch.searchsorted(values, smaller.detach().flatten()).clamp(max=len(values) - 1)
    if not torch.equal(values[found], smaller.detach().flatten()):
        raise MeasureError("A pruned weight has values that the original has not.")
    flat = first[found[counts[found] == 1]]
    kept = [sorted(set(row.tolist())) for row in torch.unravel_index(flat, weight.shape)]
    if not torch.equal(weight[torch.meshgrid(*map(torch.tensor, kept), indexing="ij")], smaller):
        raise MeasureError("The places of a pruned weight are mixed up.")
    return kept


def gap(one: nn.Module, other: nn.Module, inputs: Inputs) -> float:
    """The largest difference of the answers in float64, beside the largest value of each."""
    doubled = inputs.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    left, right = (_tensors(copy.deepcopy(model).double(), doubled) for model in (one, other))
    if [a.shape for a in left] != [b.shape for b in right]:
        raise MeasureError("The answers have different shapes.")
    return max(
        float((a - b).abs().max() / a.abs().max().clamp(min=1e-9))
        for a, b in zip(left, right, strict=True)
    )


def _tensors(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    with running(model):
        return [
            leaf for leaf in pytree.tree_leaves(inputs.clone()(model)) if isinstance(leaf, Tensor)
        ]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


def _makes(model: nn.Module, name: str, dim: int) -> bool:
    """Whether a place along this dimension makes a value; of weights that no known layer holds, any
    may.
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
