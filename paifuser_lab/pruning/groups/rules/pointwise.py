"""Elementwise operators: elements that meet are removed together; a dimension that is whole in one
operand stays whole in the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..label_space import Label, Labels, LabelSpace, along, core
from .call import Call, rule


@rule(
    "_prelu_kernel",
    "hardswish",
    "_to_copy",
    "dropout",
    "native_dropout",
    "fill",
    "zero",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
    "bernoulli",
    "normal",
    "uniform",
    "copy",
    "masked_fill",
    "contiguous",
    "detach",
    "alias",
    "clone",
    "lift_fresh",
    "nan_to_num",
    "rrelu_with_noise",
    "softplus",
    "_fused_dropout",
)
def pointwise(call: Call) -> list[Labels]:
    """The rule for every operator that torch tags as pointwise, and a few that it does not."""
    shape = call.results[0].shape
    labels = combined(
        call.space,
        [(tensor, call.known(tensor)) for tensor in call.tensors],
        shape,
        f"{call.where} adds to it or weighs it with values that stay",
    )
    call.space.emit(*(core(label) for label in labels)) if len(call.tensors) > 1 else None
    return [labels] * len(call.results)


def combined(
    space: LabelSpace, operands: Sequence[tuple[Tensor, Labels]], shape: torch.Size, why: str
) -> Labels:
    """The labels of an elementwise result of this shape."""
    result: list[Label] = []
    for tensor, labels in operands:
        before = len(result)
        for label in labels:
            _join(space, result, _aligned(label, tensor, shape), before, why)
    for tensor, labels in operands:
        aligned = [_aligned(label, tensor, shape) for label in labels]
        covered = {dim for label in aligned for dim in space.varies(label)}
        sizes = enumerate(zip(tensor.shape, tensor.stride(), strict=True), len(shape) - tensor.ndim)
        # an expanded dimension (stride 0) can be expanded to a smaller size
        full = {dim for dim, (size, stride) in sizes if size > 1 and stride != 0}
        result = [
            space.keep_whole(label, [d for d in space.varies(label) if d in full - covered], why)
            for label in result
        ]
    return tuple(label for label in result if space.varies(label))


def _join(space: LabelSpace, labels: list[Label], label: Label, before: int, why: str) -> None:
    """Join an operand's label with an earlier one along the same dimensions, or append it."""
    varied = set(space.varies(label))
    for index, other in enumerate(labels):
        if varied & set(space.varies(other)):
            space.unite(other, label) if index < before else space.keep_whole(
                label, sorted(varied), why
            )
            return
    if varied:
        labels.append(label)


def _aligned(label: Label, tensor: Tensor, shape: torch.Size) -> Label:
    return label[(None,) * (len(shape) - tensor.ndim)].expand(shape)


@rule("zeros", "ones", "full", "new_zeros", "new_ones", "new_full")
def constant(call: Call) -> list[Labels]:
    """A constant tensor."""
    shape = call.results[0].shape
    labels = call.space.new_labels(shape, range(len(shape)))
    for label in labels:
        call.space.record_length(call.layer, "", core(label).flatten())
    return [labels]


@rule("new_empty", "new_empty_strided")
def unlabelled(call: Call) -> list[Labels]:
    """A new tensor that only shares the format of its argument."""
    return [()] * len(call.results)


@rule("glu")
def glu(call: Call) -> list[Labels]:
    """The two halves of a dimension, one gating the other."""
    dim = call.dims(call.argument(1, "dim", -1), call.args[0].ndim)[0]
    halves = []
    for label in call.labels(0):
        call.space.tie_blocks(label, dim, 2)
        halves.append(label.narrow(dim, 0, label.shape[dim] // 2))
    for label in call.labels(0):
        call.space.record_length(call.layer, "", along(label, dim))
    return [tuple(halves)]
