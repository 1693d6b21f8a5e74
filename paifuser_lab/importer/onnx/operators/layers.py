"""Operators that become layers of torch.nn: convolutions, products with weights, norms, pools."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...limits import NotConvertibleError
from ...tree import Constant, Traced, Value
from .registry import Call, dtype_of, is_open, operator, shape_of

META = "meta"


@operator("Conv")
def conv(call: Call) -> Value:
    weight = call.value(1)
    bias = call.value(2) if call.has(2) else None
    rank = len(shape_of(weight)) - 2
    x, padding, options = _window(call, rank, tuple(shape_of(weight)[2:]))
    groups = int(call.attribute("group", 1))
    options = {"padding": padding, "groups": groups, **options}
    if not isinstance(weight, Constant) or not (bias is None or isinstance(bias, Constant)):
        return call.call(_of_rank(F, "conv", rank), x, weight, bias, **options)  # type: ignore[no-any-return]
    outputs, inputs, *kernel = weight.tensor.shape
    sizes = (inputs * groups, outputs, tuple(kernel))
    return _layer(call, _of_rank(nn, "Conv", rank), x, weight, bias, *sizes, **options)


@operator("ConvTranspose")
def conv_transpose(call: Call) -> Value:
    weight = call.weight(1)
    bias = call.weight(2) if call.has(2) else None
    inputs, outputs, *kernel = weight.tensor.shape
    rank, groups = len(kernel), int(call.attribute("group", 1))
    if "output_shape" in call.attributes or call.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise NotConvertibleError("its padding is chosen by its output_shape or auto_pad")
    begin, end = _pads(call, rank)
    extra = [int(size) for size in call.attribute("output_padding", [0] * rank)]
    if begin != end:  # what is cut more at the end than at the beginning
        extra = [more - (last - first) for more, first, last in zip(extra, begin, end, strict=True)]
        if min(extra) < 0:
            raise NotConvertibleError("its pads differ at the two ends")
    return _layer(
        call,
        _of_rank(nn, "ConvTranspose", rank),
        call.value(0),
        weight,
        bias,
        *(inputs, outputs * groups, tuple(kernel)),
        stride=_tuple(call, "strides", rank),
        padding=tuple(begin),
        output_padding=tuple(extra),
        groups=groups,
        dilation=_tuple(call, "dilations", rank),
    )


@operator("Gemm")
def gemm(call: Call) -> Any:
    """A linear layer, or a product with factors."""
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    x, weight = call.value(0), call.value(1)
    bias = call.value(2) if call.has(2) else None
    if call.attribute("transA", 0):
        x = call.call(torch.t, x)
    is_rows = bool(call.attribute("transB", 0))
    is_linear = isinstance(weight, Constant) and alpha == 1.0 and beta == 1.0
    outputs = shape_of(weight)[0 if is_rows else 1]
    if is_linear and isinstance(weight, Constant):
        if bias is None:
            return linear(call, x, weight, None, is_rows=is_rows)
        if isinstance(bias, Constant) and shape_of(bias) in ((outputs,), (1, outputs)):
            return linear(call, x, weight, bias, is_rows=is_rows)
    product = call.call(torch.matmul, x, call.call(torch.t, weight) if is_rows else weight)
    product = product if alpha == 1.0 else call.call(torch.mul, product, alpha)
    if bias is None:
        return product
    bias = bias if beta == 1.0 else call.call(torch.mul, bias, beta)
    return call.call(torch.add, product, bias)


@operator("MatMul")
def matmul(call: Call) -> Any:
    """A linear layer, with the bias that is added behind it, or a product of computed tensors."""
    x, weight = call.value(0), call.value(1)
    is_layer = isinstance(x, Traced) and len(x.shape) > 1
    if not is_layer or not isinstance(weight, Constant) or weight.tensor.ndim != 2:
        return call.call(torch.matmul, x, weight)
    return linear(call, x, weight, _bias_behind(call, weight.tensor.shape[1]), is_rows=False)


def linear(call: Call, x: Value, weight: Constant, bias: Constant | None, *, is_rows: bool) -> Any:
    """A linear layer; a weight of (inputs, outputs) is transposed, once for all that share it."""
    if isinstance(x, Constant):
        product = call.call(F.linear, x, weight if is_rows else call.call(torch.t, weight))
        return product if bias is None else call.call(torch.add, product, bias)
    rows = weight.tensor if is_rows else _transposed(call, weight)
    if bias is not None and bias.tensor.ndim != 1:
        bias = Constant(bias.tensor.reshape(-1))
    return _layer(call, nn.Linear, x, Constant(rows), bias, rows.shape[1], rows.shape[0])


def _transposed(call: Call, weight: Constant) -> Tensor:
    kept: dict[int, Tensor] = call.tree.__dict__.setdefault("transposed", {})
    if id(weight.tensor) not in kept:
        kept[id(weight.tensor)] = weight.tensor.t().contiguous()
    return kept[id(weight.tensor)]


def _bias_behind(call: Call, outputs: int) -> Constant | None:
    """The bias of the addition that alone reads the product; that node is joined with this one."""
    output = call.node.output[0]
    reader = call.sole_readers.get(output)
    if reader is None or reader.op_type != "Add" or reader.domain not in ("", "ai.onnx"):
        return None
    others = [name for name in reader.input if name != output]
    bias = call.constant(others[0]) if len(others) == 1 else None
    if bias is None or tuple(bias.tensor.shape) != (outputs,):
        return None
    call.joined[reader.output[0]] = output
    return bias


@operator("BatchNormalization")
def batch_norm(call: Call) -> Value:
    if call.attribute("training_mode", 0) or len(call.node.output) > 1:
        raise NotConvertibleError("it is exported in training mode")
    scale, bias, mean, variance = (call.weight(index).tensor for index in range(1, 5))
    layer = _of_rank(nn, "BatchNorm", max(1, call.rank(0) - 2))(
        len(scale), eps=float(call.attribute("epsilon", 1e-5)), device=META, dtype=scale.dtype
    )
    weights = {"weight": scale, "bias": bias, "running_mean": mean, "running_var": variance}
    return call.tree.layer(call.path, layer, weights, call.value(0))  # type: ignore[no-any-return]


@operator("LayerNormalization")
def layer_norm(call: Call) -> Value:
    if len([name for name in call.node.output if name]) > 1:
        raise NotConvertibleError("its mean is read, which torch does not return")
    x, scale = call.value(0), call.weight(1)
    bias = call.weight(2) if call.has(2) else None
    axis = int(call.attribute("axis", -1))
    shape = list(call.shape(0)[axis:])
    if list(scale.tensor.shape) != shape:
        raise NotConvertibleError("its weight has another shape than what it normalises")
    eps = float(call.attribute("epsilon", 1e-5))
    return _layer(call, nn.LayerNorm, x, scale, bias, shape, eps=eps)


@operator("InstanceNormalization", "GroupNormalization")
def group_norm(call: Call) -> Value:
    """An instance-norm is a group-norm with a group for each channel."""
    channels, scale, bias = call.shape(0)[1], call.weight(1), call.weight(2)
    groups = int(call.attribute("num_groups", channels))
    if scale.tensor.shape != (channels,):
        raise NotConvertibleError("its weight is one for each group")
    eps = float(call.attribute("epsilon", 1e-5))
    layer = nn.GroupNorm(groups, channels, eps=eps, device=META, dtype=scale.tensor.dtype)
    weights = {"weight": scale.tensor, "bias": bias.tensor}
    return call.tree.layer(call.path, layer, weights, call.value(0))  # type: ignore[no-any-return]


@operator("MaxPool")
def max_pool(call: Call) -> Value:
    if len([name for name in call.node.output if name]) > 1:
        raise NotConvertibleError("it returns indices, which count otherwise than torch's")
    kernel = tuple(call.attribute("kernel_shape"))
    x, padding, options = _window(call, len(kernel), kernel, fill=float("-inf"))
    layer = _of_rank(nn, "MaxPool", len(kernel))(
        kernel, padding=padding, ceil_mode=bool(call.attribute("ceil_mode", 0)), **options
    )
    return call.tree.layer(call.path, layer, {}, x)  # type: ignore[no-any-return]


@operator("AveragePool")
def average_pool(call: Call) -> Value:
    kernel = tuple(call.attribute("kernel_shape"))
    counts_padding = bool(call.attribute("count_include_pad", 0))
    begin, end = _pads(call, len(kernel))
    if begin != end and not counts_padding:
        raise NotConvertibleError("its pads differ at the two ends and are not counted")
    if any(size != 1 for size in call.attribute("dilations", [1])):
        raise NotConvertibleError("it is dilated")
    x, padding, options = _window(call, len(kernel), kernel)
    layer = _of_rank(nn, "AvgPool", len(kernel))(
        kernel,
        padding=padding,
        ceil_mode=bool(call.attribute("ceil_mode", 0)),
        count_include_pad=counts_padding,
        **options,
    )
    return call.tree.layer(call.path, layer, {}, x)  # type: ignore[no-any-return]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call) -> Value:
    kind = "AdaptiveAvgPool" if call.node.op_type == "GlobalAveragePool" else "AdaptiveMaxPool"
    layer = _of_rank(nn, kind, call.rank(0) - 2)(1)
    return call.tree.layer(call.path, layer, {}, call.value(0))  # type: ignore[no-any-return]


def embedding(call: Call) -> Value | None:
    """A row of a weight for each index, if that is what a Gather is."""
    table, rows = call.value(0), call.value(1)
    is_table = isinstance(table, Constant) and table.tensor.ndim == 2 and table.name
    if not is_table or isinstance(rows, Constant) or int(call.attribute("axis", 0)) != 0:
        return None
    assert isinstance(table, Constant)
    if not table.tensor.is_floating_point() or dtype_of(rows) not in (torch.int64, torch.int32):
        return None
    count, width = table.tensor.shape
    layer = nn.Embedding(count, width, device=META, dtype=table.tensor.dtype)
    return call.tree.layer(call.path, layer, {"weight": table.tensor}, rows)  # type: ignore[no-any-return]


def _window(
    call: Call, rank: int, kernel: tuple[int, ...], fill: float = 0.0
) -> tuple[Value, Any, dict[str, Any]]:
    """What a sliding window reads: the input, padded where the ends differ, and its options."""
    stride, dilation = _tuple(call, "strides", rank), _tuple(call, "dilations", rank)
    options = {"stride": stride, "dilation": dilation}
    if call.node.op_type == "AveragePool":
        options.pop("dilation")
    begin, end = _pads(call, rank)
    how = call.attribute("auto_pad", "NOTSET")
    if how in ("SAME_UPPER", "SAME_LOWER"):
        total = []
        for axis in range(rank):
            size, reach = call.shape(0)[axis + 2], (kernel[axis] - 1) * dilation[axis] + 1
            if stride[axis] != 1 and is_open(call.value(0), axis + 2):
                raise NotConvertibleError(f"its padding {how} depends on the size of the image")
            total.append(max(0, (-(-size // stride[axis]) - 1) * stride[axis] + reach - size))
        less, more = [size // 2 for size in total], [size - size // 2 for size in total]
        begin, end = (less, more) if how == "SAME_UPPER" else (more, less)
    x = call.value(0)
    if begin == end and (
        fill == 0.0 or all(2 * a <= b for a, b in zip(begin, kernel, strict=True))
    ):
        return x, tuple(begin), options
    pads = [size for pair in zip(reversed(begin), reversed(end), strict=True) for size in pair]
    return call.call(F.pad, x, pads, value=fill), (0,) * rank, options


def _pads(call: Call, rank: int) -> tuple[list[int], list[int]]:
    pads = [int(size) for size in call.attribute("pads", [0] * (2 * rank))]
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise NotConvertibleError("its pads do not fit its window")
    return pads[:rank], pads[rank:]


def _tuple(call: Call, name: str, rank: int) -> tuple[int, ...]:
    return tuple(int(size) for size in call.attribute(name, [1] * rank))


def _of_rank(module: Any, name: str, rank: int) -> Any:
    """What a module of torch has of this name for so many dimensions of an image."""
    if rank not in (1, 2, 3):
        raise NotConvertibleError(f"torch has no such layer in {rank} dimensions")
    return getattr(module, f"{name}{rank}d")


def _layer(
    call: Call,
    kind: Any,
    x: Value,
    weight: Constant,
    bias: Constant | None,
    *sizes: Any,
    **options: Any,
) -> Value:
    """A layer with these weights, called on a value."""
    layer = kind(*sizes, bias=bias is not None, device=META, dtype=weight.tensor.dtype, **options)
    weights = {"weight": weight.tensor}
    if bias is not None:
        weights["bias"] = bias.tensor
    return call.tree.layer(call.path, layer, weights, x)  # type: ignore[no-any-return]
