"""Operators that move values without computing: reshape, transpose, slice, gather, pad, resize."""

from __future__ import annotations

import operator as python
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...limits import NotConvertibleError
from ...tree import Constant, Size, Value
from ..proto import tensor_of
from .layers import embedding
from .registry import Call, dtype_of, operator, shape_of

END = (1 << 31) - 1  # exporters write larger numbers for "to the end"


@operator("Reshape")
def reshape(call: Call) -> Value:
    """Another shape; a size of 0 is that of the input."""
    sizes = call.sizes(1)
    value = call.value(0)
    copies = not call.attribute("allowzero", 0)
    shape: list[Any] = []
    for axis, size in enumerate(sizes):
        if copies and isinstance(size.value, int) and size.value == 0:
            size = call.tree.size(value, axis)
        shape.append(size)
    return call.call(torch.reshape, value, shape)  # type: ignore[no-any-return]


@operator("Flatten")
def flatten(call: Call) -> Value:
    axis = int(call.attribute("axis", 1))
    if axis == 1:
        return call.call(torch.flatten, call.value(0), 1)  # type: ignore[no-any-return]
    rank = call.rank(0)
    first = [call.tree.size(call.value(0), index) for index in range(axis % rank if axis else 0)]
    rows: Any = call.tree.number(1)
    for size in first:
        rows = call.tree.arithmetic(python.mul, rows, size)
    return call.call(torch.reshape, call.value(0), [rows, -1])  # type: ignore[no-any-return]


@operator("Transpose")
def transpose(call: Call) -> Value:
    order = call.attribute("perm", list(reversed(range(call.rank(0)))))
    return call.call(torch.permute, call.value(0), [int(axis) for axis in order])  # type: ignore[no-any-return]


@operator("Squeeze")
def squeeze(call: Call) -> Value:
    axes = call.integers(1, "axes")
    if axes is None:
        return call.call(torch.squeeze, call.value(0))  # type: ignore[no-any-return]
    return call.call(torch.squeeze, call.value(0), axes)  # type: ignore[no-any-return]


@operator("Unsqueeze")
def unsqueeze(call: Call) -> Value:
    value, axes = call.value(0), call.integers(1, "axes") or []
    rank = call.rank(0) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        value = call.call(torch.unsqueeze, value, axis)
    return value


@operator("Concat")
def concat(call: Call) -> Value:
    parts = [call.value(index) for index in range(len(call.inputs))]
    return call.call(torch.cat, parts, dim=int(call.attribute("axis")))  # type: ignore[no-any-return]


@operator("Split")
def split(call: Call) -> list[Value]:
    axis = int(call.attribute("axis", 0))
    parts: Any = call.integers(1, "split")
    if parts is None:  # all of one length, the last one perhaps shorter
        parts = -(-call.shape(0)[axis] // len(call.node.output))
    return call.call(torch.split, call.value(0), parts, dim=axis)  # type: ignore[no-any-return]


@operator("Slice")
def slice_(call: Call) -> Value:
    """A part along some dimensions; a negative step reverses."""
    starts, ends = _bounds(call, 1, "starts"), _bounds(call, 2, "ends")
    axes = call.integers(3, "axes") or list(range(len(starts)))
    steps = call.integers(4) or [1] * len(starts)
    value = call.value(0)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            size = shape_of(value)[axis]
            kept = [start.value, end.value]
            if step != -1 or not (kept[0] in (-1, size - 1) or kept[0] >= END):
                raise NotConvertibleError("it goes backwards through a part")
            if not (isinstance(kept[1], int) and kept[1] < -size):
                raise NotConvertibleError("it goes backwards through a part")
            value = call.call(torch.flip, value, [axis])
            continue
        value = call.call(_sliced, value, axis, start, end, step)
    return value


def _bounds(call: Call, index: int, attribute: str) -> list[Size]:
    if attribute in call.attributes:
        return [call.tree.number(int(size)) for size in call.attributes[attribute]]
    return call.sizes(index)


def _sliced(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    result: Tensor = torch.ops.aten.slice.Tensor(x, axis, start, min(end, END), step)
    return result


@operator("Gather")
def gather(call: Call) -> Value:
    """Rows at some indices: an embedding where the rows are a weight's."""
    if (looked_up := embedding(call)) is not None:
        return looked_up
    axis, indices = int(call.attribute("axis", 0)), call.value(1)
    if isinstance(indices, Constant):
        if indices.tensor.ndim == 0:
            return call.call(torch.select, call.value(0), axis, int(indices.tensor))  # type: ignore[no-any-return]
        size = call.tree.size(call.value(0), axis)
        own = indices.tensor
        if isinstance(size.value, int):
            indices = Constant(torch.where(own < 0, own + size.value, own))
        elif bool((own < 0).any()):  # from the end of a size that is open
            return call.call(_at, call.value(0), axis % call.rank(0), indices)  # type: ignore[no-any-return]
    return call.call(_indexed, call.value(0), axis % call.rank(0), indices)  # type: ignore[no-any-return]


def _indexed(x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Values at some indices along a dimension."""
    if indices.ndim == 1:
        return torch.index_select(x, axis, indices)
    return _at(x, axis, indices)


def _at(x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Values at some indices along a dimension; negative ones count from its end."""
    places: tuple[Any, ...] = (*(slice(None),) * axis, indices.long())
    return x[places]


@operator("GatherElements")
def gather_elements(call: Call) -> Value:
    """For each place of the output the value at an index along one dimension."""
    axis = int(call.attribute("axis", 0))
    size = call.tree.size(call.value(0), axis)
    indices = call.call(torch.remainder, call.value(1), size)
    return call.call(torch.gather, call.value(0), axis, indices)  # type: ignore[no-any-return]


@operator("GatherND")
def gather_nd(call: Call) -> Value:
    call.flag("batch_dims", (0,), 0)
    return call.call(_at_places, call.value(0), call.value(1))  # type: ignore[no-any-return]


def _at_places(x: Tensor, places: Tensor) -> Tensor:
    """The values of a tensor at some places, whose indices are in the last dimension."""
    return x[places.long().unbind(-1)]


@operator("ScatterND")
def scatter_nd(call: Call) -> Value:
    call.flag("reduction", ("none",), "none")
    return call.call(_put_at, call.value(0), call.value(1), call.value(2))  # type: ignore[no-any-return]


def _put_at(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """A copy with other values at some places."""
    return torch.index_put(x, places.long().unbind(-1), values)


@operator("Expand")
def expand(call: Call) -> Value:
    """Repeated along dimensions of size 1, in both directions."""
    shape, rank = call.sizes(1), call.rank(0)
    more = max(0, rank - len(shape))
    one = call.tree.number(1)
    wanted = [*[one] * more, *shape]
    own = [one] * (len(wanted) - rank) + [call.tree.size(call.value(0), i) for i in range(rank)]
    result = [
        mine if all(size == 1 for size in other.each) else other
        for mine, other in zip(own, wanted, strict=True)
    ]
    return call.call(Tensor.expand, call.value(0), result)  # type: ignore[no-any-return]


@operator("Tile")
def tile(call: Call) -> Value:
    return call.call(Tensor.repeat, call.value(0), call.sizes(1))  # type: ignore[no-any-return]


@operator("Pad")
def pad(call: Call) -> Value:
    mode = call.flag("mode", ("constant", "reflect", "edge"), "constant")
    pads, rank = call.integers(1, "pads") or [], call.rank(0)
    axes = call.integers(3) or list(range(rank))
    if len(pads) != 2 * len(axes):
        raise NotConvertibleError("its pads do not fit its input")
    around = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        around[axis] = (pads[index], pads[index + len(axes)])
    while mode != "constant" and around and around[0] == (0, 0) and len(around) > 1:
        around = around[1:]
    flat = [size for pair in reversed(around) for size in pair]
    fill = call.operand(2) if call.has(2) else call.attribute("value", 0.0)
    if mode == "constant":
        return call.call(F.pad, call.value(0), flat, value=fill)  # type: ignore[no-any-return]
    torch_mode = "replicate" if mode == "edge" else mode
    return call.call(F.pad, call.value(0), flat, mode=torch_mode)  # type: ignore[no-any-return]


@operator("Resize", "Upsample")
def resize(call: Call) -> Value:
    mode = call.flag("mode", ("nearest", "linear", "cubic"), "nearest")
    how = call.attribute("coordinate_transformation_mode", "half_pixel")
    is_resize = call.node.op_type == "Resize" and call.opset > 10
    if "axes" in call.attributes or call.attribute("antialias", 0):
        raise NotConvertibleError("it is limited to some axes or smooths, which torch does not")
    rank = call.rank(0)
    scales = _scales(call, 2 if is_resize else 1)
    sizes = [item.value for item in call.sizes(3)][2:] if call.has(3) else []
    options: dict[str, Any] = {"size": sizes} if sizes else {"scale_factor": scales}
    if mode == "nearest":
        rounding = call.attribute("nearest_mode", "round_prefer_floor")
        if not _is_torch_nearest(how if is_resize else "asymmetric", rounding, scales):
            raise NotConvertibleError(f"its {how} and {rounding} choose other pixels than torch")
        return call.call(F.interpolate, call.value(0), mode="nearest", **options)  # type: ignore[no-any-return]
    modes = {("linear", 3): "linear", ("linear", 4): "bilinear", ("linear", 5): "trilinear"}
    name = modes.get((mode, rank), "bicubic" if rank == 4 and mode == "cubic" else "")
    kinds = {"align_corners": True, "half_pixel": False, "pytorch_half_pixel": False}
    if not name or how not in kinds or call.attribute("cubic_coeff_a", -0.75) != -0.75:
        raise NotConvertibleError(f"its {mode} with {how} has no counterpart in torch")
    return call.call(  # type: ignore[no-any-return]
        F.interpolate, call.value(0), mode=name, align_corners=kinds[how], **options
    )


def _scales(call: Call, index: int) -> list[float]:
    """The scales of an image's sides: an input, or the attribute that older versions have."""
    if not call.has(index) and "scales" not in call.attributes:
        return []
    scales = call.attributes.get("scales") or call.weight(index).tensor.tolist()
    if scales and list(scales[:2]) != [1.0, 1.0]:
        raise NotConvertibleError("it resizes the batch or the channels")
    return [float(scale) for scale in scales[2:]]


def _is_torch_nearest(how: str, rounding: str, scales: list[float]) -> bool:
    if how == "asymmetric" and rounding in ("floor", "round_prefer_floor"):
        return rounding == "floor" or all(scale == int(scale) and scale <= 2 for scale in scales)
    is_whole = bool(scales) and all(scale == int(scale) for scale in scales)
    return how in ("half_pixel", "pytorch_half_pixel") and is_whole


@operator("ConstantOfShape")
def constant_of_shape(call: Call) -> Value:
    value = call.attribute("value")
    fill = torch.zeros(1) if value is None else tensor_of(value, Path())
    return call.call(torch.full, call.sizes(0), fill.item(), dtype=fill.dtype)  # type: ignore[no-any-return]


@operator("Range")
def range_(call: Call) -> Value:
    if all(isinstance(call.inputs[index], Constant) for index in range(3)):
        start, end, step = (call.operand(index) for index in range(3))
        return call.call(torch.arange, start, end, step, dtype=dtype_of(call.value(0)))  # type: ignore[no-any-return]
    start, end, step = (call.sizes(index)[0] for index in range(3))
    return call.call(torch.arange, start, end, step, dtype=torch.int64)  # type: ignore[no-any-return]


@operator("Trilu")
def trilu(call: Call) -> Value:
    diagonal = (call.integers(1) or [0])[0]
    function = torch.triu if call.attribute("upper", 1) else torch.tril
    return call.call(function, call.value(0), diagonal)  # type: ignore[no-any-return]


@operator("DepthToSpace")
def depth_to_space(call: Call) -> Value:
    """Channels as pixels; the way back orders channels otherwise than torch's."""
    block = int(call.attribute("blocksize"))
    call.flag("mode", ("CRD",), "DCR")
    return call.call(F.pixel_shuffle, call.value(0), block)  # type: ignore[no-any-return]
