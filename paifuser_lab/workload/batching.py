"""A workload's example inputs at another batch size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import MeasureError
from ..model.tensors import tensors_in
from .inputs import Inputs
from .workload import Workload


def example_batch(work: Workload) -> int:
    """The batch of the example inputs: the first dimension of their first tensor."""
    sizes = [tensor.shape[0] for tensor in work.inputs.tensors if tensor.ndim]
    if not sizes:
        raise MeasureError(
            f"{work.name} takes no tensor with a batch dimension, so there is no batch size to "
            "choose."
        )
    return int(sizes[0])


def repeated(inputs: Inputs, example: int, batch: int) -> Inputs:
    """The example inputs repeated to fill the batch; tensors without a batch stay unchanged."""

    def repeat(tensor: Tensor) -> Tensor:
        if not _has_batch(tensor, example):
            return tensor.detach().clone()
        whole, rest = divmod(batch, example)
        # an empty part would lose channels-last
        parts = [*[tensor.detach()] * whole, *([tensor.detach()[:rest]] if rest else [])]
        return torch.cat(parts)

    return inputs.map(repeat)


def first_of(larger: Inputs, inputs: Inputs, example: int, batch: int) -> Inputs:
    """The first examples of a larger batch, without a copy."""
    has_batch = iter([_has_batch(tensor, example) for tensor in inputs.tensors])
    return larger.map(lambda tensor: tensor[:batch] if next(has_batch) else tensor)


def tensor_bytes(inputs: Inputs) -> int:
    """The memory of all tensors among the inputs."""
    return sum(tensor.numel() * tensor.element_size() for tensor in inputs.tensors)


def leading_sizes(output: Any) -> tuple[int, ...]:
    """The first dimension of every tensor in an output."""
    return tuple(int(leaf.shape[0]) if leaf.ndim else 0 for leaf in tensors_in(output))


def _has_batch(tensor: Tensor, example: int) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] == example
