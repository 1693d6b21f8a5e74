"""Operators that only move values, and so labels; an indexed dimension stays whole."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..label_space import Label, Labels, along, compressed, core, unfolded
from .call import Call, rule


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "unflatten", "flatten")
def reshape(call: Call) -> list[Labels]:
    """A new shape; whether a smaller tensor fits it is decided at the end of the trace."""
    if call.results[0].dtype != call.args[0].dtype:
        call.space.fix(call.labels(0), call.why)
        return [()]
    labels = tuple(compressed(label.reshape(call.results[0].shape)) for label in call.labels(0))
    _recorded(call, call.labels(0))
    return [_recorded(call, labels)]


@rule(
    "permute",
    "transpose",
    "t",
    "unsqueeze",
    "squeeze",
    "repeat",
    "unfold",
    "movedim",
    "swapaxes",
    "adjoint",
    "mT",
)
def move(call: Call) -> list[Labels]:
    """Dimensions are permuted, added, removed or repeated."""
    _recorded(call, call.labels(0))
    return [_recorded(call, labels) for labels in call.all_moved(call.labels(0))]


def _recorded(call: Call, labels: Labels) -> Labels:
    for label in labels:
        for dim, size in enumerate(core(label).shape):
            if size > 1:
                call.space.record_length(call.layer, "", along(label, dim))
    return labels


@rule("as_strided")
def as_strided(call: Call) -> list[Labels]:
    """The same tensor with other strides for dimensions of size 1; anything else is fixed."""
    tensor, result = call.args[0], call.results[0]
    strides = zip(tensor.shape, tensor.stride(), result.stride(), strict=False)
    is_same = tensor.shape == result.shape and all(
        size == 1 or old == new for size, old, new in strides
    )
    if not is_same:
        call.space.fix(call.labels(0), call.why)
    return [call.labels(0) if is_same else ()]


@rule("expand")
def expand(call: Call) -> list[Labels]:
    """Repeated values; a tensor without labels gets new ones for the repeated dimensions."""
    tensor, result = call.args[0], call.results[0]
    if call.labels(0):
        return move(call)
    first = result.ndim - tensor.ndim
    repeated = [
        dim
        for dim in range(result.ndim)
        if dim < first or tensor.shape[dim - first] != result.shape[dim]
    ]
    return [_recorded(call, call.space.new_labels(result.shape, repeated))]


@rule("select", "unbind")
def select(call: Call) -> list[Labels]:
    """One position along a dimension, or each."""
    dims = call.dims(call.argument(1, "dim", 0), call.args[0].ndim)
    return call.all_moved(call.space.keep_all_whole(call.labels(0), dims, call.why))


@rule("roll", "flip", "cumsum", "cumprod", "sort", "argsort", "topk", "tril", "triu")
def ordered(call: Call) -> list[Labels]:
    """Operators that depend on the order along some dimensions."""
    name = "dims" if call.name in ("roll", "flip") else "dim"
    index = {"roll": 2, "topk": 2, "sort": 1}.get(call.name, 1)
    rank = call.args[0].ndim
    dims = (
        [rank - 2, rank - 1]
        if call.name.startswith("tri")
        else call.dims(call.argument(index, name, -1), rank)
    )
    labels = call.space.keep_all_whole(call.labels(0), dims, call.why)
    return [tuple(core(label).expand(result.shape) for label in labels) for result in call.results]


@rule(
    "split",
    "unsafe_split",
    "split_with_sizes",
    "unsafe_split_with_sizes",
    "chunk",
    "unsafe_chunk",
    "split_copy",
    "tensor_split",
)
def split(call: Call) -> list[Labels]:
    """Parts of a dimension; equal ones lose the same positions."""
    dim = call.dims(call.argument(2, "dim", 0), call.args[0].ndim)[0]
    sizes = [result.shape[dim] for result in call.results]
    for label in call.labels(0):
        if len(set(sizes)) == 1:
            call.space.tie_blocks(label, dim, len(sizes))
    parts = [torch.split(label, sizes, dim) for label in call.labels(0)]
    return [
        _recorded(call, tuple(compressed(part[index]) for part in parts))
        for index in range(len(sizes))
    ]


@rule("slice", "narrow")
def slice_(call: Call) -> list[Labels]:
    """A part of a dimension; one of several equal parts loses the same positions as the others."""
    dim = call.dims(call.argument(1, "dim", 0), call.args[0].ndim)[0]
    size, length = call.args[0].shape[dim], call.results[0].shape[dim]
    start, step = (
        call.argument(2, "start", 0) or 0,
        call.argument(4, "step", 1) if call.name == "slice" else 1,
    )
    labels = call.labels(0)
    if length != size or step != 1:
        is_part = step == 1 and length > 0 and size % length == 0 and (start % size) % length == 0
        if is_part:
            for label in labels:
                call.space.tie_blocks(label, dim, size // length)
        else:
            labels = call.space.keep_all_whole(labels, [dim], call.why)
    return [_recorded(call, moved) for moved in call.all_moved(labels)]


@rule("cat", "concatenate", "stack", "_cat")
def cat(call: Call) -> list[Labels]:
    """Tensors side by side: along that dimension each keeps its own ids, along the others they are
    joined.
    """
    result, tensors = call.results[0], [tensor for tensor in call.args[0] if tensor.numel()]
    dim = call.dims(call.argument(1, "dim", 0), result.ndim)[0]
    parts = [call.known(tensor) for tensor in tensors]
    if call.name == "stack":
        tensors = [tensor.unsqueeze(dim) for tensor in tensors]
        parts = [tuple(label.unsqueeze(dim) for label in labels) for labels in parts]
    varied = [[(label, call.space.varies(label)) for label in labels] for labels in parts]
    joined = (
        [_joined_along(dim, tensors, varied)]
        if any(dim in dims for labelled in varied for _, dims in labelled)
        else []
    )
    for other in sorted(
        {dims[0] for labelled in varied for _, dims in labelled if dims and dim not in dims}
    ):
        joined.append(_joined_across(call, other, dim, tensors, varied).expand(result.shape))
    call.space.emit(*(core(label) for label in joined))
    return [_recorded(call, tuple(map(compressed, joined)))]


Varied = list[list[tuple[Label, tuple[int, ...]]]]


def _joined_along(dim: int, tensors: list[Tensor], varied: Varied) -> Label:
    """The ids that vary along the dimension, and fixed positions for parts where none do."""
    parts = []
    for tensor, labelled in zip(tensors, varied, strict=True):
        label = next((label for label, dims in labelled if dim in dims), None)
        parts.append(
            torch.zeros((), dtype=torch.int64).expand(tensor.shape) if label is None else label
        )
    inner = [
        d
        for d in range(tensors[0].ndim)
        if d != dim and all(part.stride(d) == 0 or part.shape[d] == 1 for part in parts)
    ]
    thin = [
        part[tuple(slice(0, 1) if d in inner else slice(None) for d in range(part.ndim))]
        for part in parts
    ]
    joined = torch.cat(thin, dim)
    return joined.expand(
        [joined.shape[d] if d not in inner else tensors[0].shape[d] for d in range(joined.ndim)]
    )


def _joined_across(
    call: Call, other: int, dim: int, tensors: list[Tensor], varied: Varied
) -> Label:
    """The ids along another dimension, joined over all parts."""
    rows = [
        next((label.narrow(dim, 0, 1) for label, dims in labelled if dims[:1] == (other,)), None)
        for labelled in varied
    ]
    first = next(row for row in rows if row is not None)
    for row, tensor in zip(rows, tensors, strict=True):
        if row is not None:
            call.space.unite(first, row)
        elif tensor.shape[other] > 1:
            first = call.space.keep_whole(first, [other], call.why)
    return first


@rule("index", "index_select", "gather", "embedding", "take_along_dim")
def index(call: Call) -> list[Labels]:
    """Positions by number: the indexed dimensions stay whole."""
    labels = call.space.keep_all_whole(call.labels(0), _indexed_dims(call), call.why)
    if call.name == "embedding":
        return [
            tuple(
                along(label, 1).expand(call.results[0].shape)
                for label in labels
                if core(label).shape[1] > 1
            )
        ]
    if call.name == "gather":
        return [tuple(core(label).expand(call.results[0].shape) for label in labels)]
    return call.all_moved(labels)


def _indexed_dims(call: Call) -> list[int]:
    if call.name != "index":
        return (
            [0]
            if call.name == "embedding"
            else call.dims(call.argument(1, "dim"), call.args[0].ndim)
        )
    dims: list[int] = []
    dim = 0
    for numbers in call.args[1]:
        width = (
            1 if numbers is None or numbers.dtype not in (torch.bool, torch.uint8) else numbers.ndim
        )
        dims += range(dim, dim + width) if numbers is not None else ()
        dim += width
    return dims


@rule("constant_pad_nd")
def constant_pad(call: Call) -> list[Labels]:
    """Padding around a tensor; padded channels of zeros stay."""
    widths, rank = call.argument(1, "pad"), call.args[0].ndim
    padded = {rank - 1 - index // 2 for index, width in enumerate(widths) if width}
    is_plain = all(width >= 0 for width in widths) and not call.argument(2, "value", 0)
    labels = []
    for label in call.labels(0):
        label = label if is_plain else call.space.keep_whole(label, padded, call.why)
        inner = core(label)
        grown = [
            width if inner.shape[rank - 1 - index // 2] > 1 else 0
            for index, width in enumerate(widths)
        ]
        labels.append(pad(inner, grown, value=0).expand(call.results[0].shape))
    return [tuple(labels)]


@rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")
def shuffle(call: Call) -> list[Labels]:
    """Channels exchanged with pixels or each other, in blocks that a smaller tensor must have."""
    labels = call.space.keep_all_whole(
        call.labels(0),
        [d for d in range(call.args[0].ndim) if d != call.args[0].ndim - 3],
        call.why,
    )
    factor = call.args[1]
    shuffled = []
    for label in labels:
        block = factor if "channel" in call.name else factor * factor
        if call.name != "pixel_unshuffle":
            call.space.watch(
                (unfolded(label, -3, (block, -1) if "channel" in call.name else (-1, block)),)
            )
        shuffled.append(compressed(call.operator(label.double(), *call.args[1:]).long()))
    if call.name == "pixel_shuffle":
        shuffled = [
            call.space.keep_whole(label, [label.ndim - 2, label.ndim - 1], call.why)
            for label in shuffled
        ]
    return [tuple(shuffled)]
