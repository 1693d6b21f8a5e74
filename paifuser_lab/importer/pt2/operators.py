"""The ATen operators that a program may call: computed from tensors alone, without a state, random
numbers or memory that nobody wrote. Those of layers become layers of torch.nn.
"""

from __future__ import annotations

import operator as python
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..limits import NotConvertibleError, shown
from ..tree import Constant, Traced, Tree

TARGET = re.compile(r"torch\.ops\.(aten|quantized_decomposed)\.([a-z0-9_]+)\.([A-Za-z0-9_]+)")
META = "meta"
ALLOWED = frozenset(
    """
    abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d add addcdiv addcmul addmm alias all amax amin any arange argmax argmin
    asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bitwise_and
    bitwise_not bitwise_or bitwise_xor bmm broadcast_to bucketize cat ceil celu chunk clamp
    clamp_max clamp_min clone concat constant_pad_nd contiguous conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d convolution copy cos cosh cumprod cumsum
    dequantize_per_channel dequantize_per_tensor detach diagonal div dropout einsum elu embedding
    eq erf exp expand expand_as expm1 eye feature_dropout fill flatten flip floor floor_divide
    fmod full full_like gather ge gelu glu group_norm gt hardsigmoid hardswish hardtanh im2col
    index index_add index_copy index_put index_select instance_norm isfinite isinf isnan
    layer_norm le leaky_relu lerp lift_fresh_copy linalg_vector_norm linear linspace log log10
    log1p log2 log_sigmoid log_softmax logical_and logical_not logical_or logical_xor logsumexp
    lt masked_fill matmul max max_pool1d max_pool2d max_pool3d maximum mean meshgrid min minimum
    mish mm mul movedim narrow native_group_norm native_layer_norm ne neg new_full new_ones
    new_zeros norm numpy_T one_hot ones ones_like outer pad permute pixel_shuffle pixel_unshuffle
    polar pow prelu prod quantize_per_channel quantize_per_tensor reciprocal reflection_pad1d
    reflection_pad2d relu relu6 remainder repeat repeat_interleave replication_pad1d
    replication_pad2d reshape reshape_as rms_norm roll rot90 round rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add select select_scatter selu sigmoid sign silu
    sin sinh slice slice_scatter softmax softplus sort split split_with_sizes sqrt square squeeze
    stack std sub sum swapaxes t tan tanh tensor_split tile to topk transpose tril triu true_divide
    type_as unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest_exact2d upsample_trilinear3d var var_mean view view_as where zeros zeros_like
    _adaptive_avg_pool2d _log_softmax _native_batch_norm_legit_no_training _safe_softmax _softmax
    _to_copy _unsafe_view zero __and__ __or__ __xor__
    """.split()  # noqa: SIM905 (a page of names)
)
CHECKS = (  # operators that compute nothing
    "aten._assert_tensor_metadata", "aten._assert_scalar", "aten._assert_async",
    "aten.sym_constrain_range", "aten.sym_constrain_range_for_size",
)  # fmt: skip
SIZES: dict[str, Callable[..., Any]] = {  # arithmetic of sizes
    f"_operator.{name}": getattr(python, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge")
}
# functions by which other tools of the lab know an operator
KNOWN_AS: dict[str, Callable[..., Any]] = {
    "add.Tensor": torch.add, "mul.Tensor": torch.mul, "sub.Tensor": torch.sub,
    "matmul.default": torch.matmul, "cat.default": torch.cat, "softmax.int": torch.softmax,
    "flatten.using_ints": torch.flatten, "view.default": torch.reshape,
    "_unsafe_view.default": torch.reshape, "reshape.default": torch.reshape,
    "scaled_dot_product_attention.default": F.scaled_dot_product_attention,
}  # fmt: skip
RANDOM = ("dropout_p", "train", "training")  # arguments that are 0 or False in inference


def _quantize(x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """Integers of a scale and a zero point."""
    return torch.clamp(torch.round(x * (1.0 / scale)) + zero, low, high).to(dtype)


def _dequantize(x: Tensor, scale: Any, zero: Any, *_: Any, out_dtype: Any = None) -> Tensor:
    """The numbers that integers of a scale and a zero point stand for."""
    values: Tensor = (x.to(torch.float32) - zero) * scale
    return values.to(out_dtype or torch.float32)


def _quantize_channels(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """Integers with a scale for each index of a dimension."""
    scales, zeros = _along(x, scales, axis), _along(x, zeros, axis)
    return _quantize(x, scales, zeros, low, high, dtype)


def _dequantize_channels(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, *_: Any, out_dtype: Any = None
) -> Tensor:
    """The numbers that integers with a scale for each index of a dimension stand for."""
    return _dequantize(x, _along(x, scales, axis), _along(x, zeros, axis), out_dtype=out_dtype)


def _along(x: Tensor, values: Tensor, axis: int) -> Tensor:
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape)


QUANTIZED: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor": _quantize, "dequantize_per_tensor": _dequantize,
    "quantize_per_channel": _quantize_channels, "dequantize_per_channel": _dequantize_channels,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Call:
    """An operator with its arguments by the names of its schema, defaults included."""

    name: str
    function: Any
    positional: list[Any]
    keywords: dict[str, Any]
    arguments: dict[str, Any]
    path: str  # where a layer goes
    tree: Tree

    def layer(self, layer: nn.Module, **weights: Any) -> Any:
        """The operator as a layer, which its input is given to."""
        tensors = {name: value.tensor for name, value in weights.items() if value is not None}
        return self.tree.layer(self.path, layer, tensors, self.positional[0])


def named_operator(target: str) -> tuple[str, Any, bool]:
    """The name, the overload without a side effect, and whether it writes in place."""
    match = TARGET.fullmatch(target)
    if match is None:
        raise NotConvertibleError("it is no operator of ATen, and is not run")
    namespace, written, overload = match.groups()
    name = written.removesuffix("_") if not written.startswith("__") else written
    if name not in ALLOWED or (namespace != "aten") != (name in QUANTIZED):
        raise NotConvertibleError(f"{shown(written)} is none of the operators that are called here")
    if name in QUANTIZED:
        return name, QUANTIZED[name], False
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        raise NotConvertibleError(f"the installed torch has no {shown(f'{name}.{overload}')}")
    function = getattr(packet, overload)
    if any(each.alias_info and each.alias_info.is_write for each in function._schema.arguments):
        raise NotConvertibleError("it writes into a tensor that it is given")
    return name, function, written != name


def as_layer(call: Call) -> Any:
    """The operator as a layer of torch.nn; None where it is none."""
    if call.name == "embedding":
        return _embedding(call, *call.positional[:2])
    rule = LAYERS.get(call.name)
    first, *rest = call.arguments or ("",)
    x = call.arguments.get(first)
    if rule is None or not isinstance(x, Traced) or not x.metas[0].is_floating_point():
        return None
    return rule(call, x, **{name: call.arguments[name] for name in rest})


def _fixed(*values: Any) -> bool:
    """Whether a layer can hold these weights."""
    return all(value is None or isinstance(value, Constant) for value in values)


def _convolution(kinds: tuple[Any, ...]) -> Callable[..., Any]:
    def convolution(call: Call, x: Traced, weight: Any, bias: Any, **options: Any) -> Any:
        if not _fixed(weight, bias):
            return None
        is_transposed = kinds[0] is nn.ConvTranspose1d
        outputs, inputs, *kernel = weight.tensor.shape
        groups = options["groups"]
        channels = (outputs, inputs * groups) if is_transposed else (inputs * groups, outputs)
        rank = len(kernel)
        sizes = {
            name: tuple(value) * (rank if len(value) == 1 else 1)
            if isinstance(value, list | tuple)
            else value
            for name, value in options.items()
        }
        layer = kinds[rank - 1](
            *channels, tuple(kernel), bias=bias is not None, device=META,
            dtype=weight.tensor.dtype, **sizes,
        )  # fmt: skip
        return call.layer(layer, weight=weight, bias=bias)

    return convolution


def _linear(call: Call, x: Traced, weight: Any, bias: Any) -> Any:
    if not _fixed(weight, bias) or weight.tensor.ndim != 2:
        return None
    outputs, inputs = weight.tensor.shape
    has_bias, dtype = bias is not None, weight.tensor.dtype
    layer = nn.Linear(inputs, outputs, bias=has_bias, device=META, dtype=dtype)
    return call.layer(layer, weight=weight, bias=bias)


def _batch_norm(
    call: Call, x: Traced, weight: Any, bias: Any, running_mean: Any, running_var: Any, eps: float,
    **_: Any,
) -> Any:  # fmt: skip
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    parts = (weight, bias, running_mean, running_var)
    if not all(isinstance(part, Constant) for part in parts) or len(x.shape) not in kinds:
        return None
    layer = kinds[len(x.shape)](len(weight.tensor), eps=eps, device=META, dtype=weight.tensor.dtype)
    return call.layer(
        layer, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )


def _layer_norm(
    call: Call, x: Traced, normalized_shape: Any, weight: Any, bias: Any, eps: float, **_: Any
) -> Any:
    if not isinstance(weight, Constant) or not _fixed(bias):
        return None
    has_bias, dtype = bias is not None, weight.tensor.dtype
    shape = [int(size) for size in normalized_shape]
    layer = nn.LayerNorm(shape, eps=eps, bias=has_bias, device=META, dtype=dtype)
    return call.layer(layer, weight=weight, bias=bias)


def _group_norm(
    call: Call, x: Traced, num_groups: int, weight: Any, bias: Any, eps: float, **_: Any
) -> Any:
    if not isinstance(weight, Constant) or not isinstance(bias, Constant):
        return None
    count, dtype = len(weight.tensor), weight.tensor.dtype
    layer = nn.GroupNorm(num_groups, count, eps=eps, device=META, dtype=dtype)
    return call.layer(layer, weight=weight, bias=bias)


def _embedding(call: Call, weight: Any, indices: Any) -> Any:
    if not isinstance(weight, Constant) or not isinstance(indices, Traced):
        return None
    rows, width = weight.tensor.shape
    layer = nn.Embedding(rows, width, device=META, dtype=weight.tensor.dtype)
    return call.tree.layer(call.path, layer, {"weight": weight.tensor}, indices)


def _activation(kind: Any, *names: str) -> Callable[..., Any]:
    def activation(call: Call, x: Traced, **arguments: Any) -> Any:
        return call.layer(kind(*(arguments[name] for name in names)))

    return activation


def _hardtanh(call: Call, x: Traced, min_val: float, max_val: float, **_: Any) -> Any:
    return call.layer(nn.ReLU6() if (min_val, max_val) == (0, 6) else nn.Hardtanh(min_val, max_val))


def _pool(kinds: tuple[Any, ...], *names: str) -> Callable[..., Any]:
    def pool(call: Call, x: Traced, **arguments: Any) -> Any:
        values = {name: _sizes(arguments[name]) for name in names}
        is_plain = all(type(size) is int for value in values.values() for size in value or ())
        if not is_plain or arguments.get("divisor_override") is not None:
            return None
        rank = int(call.name[-2])  # of max_pool2d
        options = {
            name: value[0] if value and len(value) == 1 else value for name, value in values.items()
        }
        switches = {name: arguments[name] for name in SWITCHES if name in arguments}
        return call.layer(kinds[rank - 1](**options, **switches))

    return pool


def _sizes(value: Any) -> tuple[Any, ...] | None:
    """An option of a window as a tuple; None for the empty list, which stands for the default."""
    return tuple(value if isinstance(value, list | tuple) else [value]) or None


def _dropout(call: Call, x: Traced, **_: Any) -> Any:
    return x


SWITCHES = ("ceil_mode", "count_include_pad")
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
LAYERS: dict[str, Callable[..., Any]] = {
    "linear": _linear, "batch_norm": _batch_norm, "layer_norm": _layer_norm,
    "group_norm": _group_norm, "dropout": _dropout, "feature_dropout": _dropout,
    "relu": _activation(nn.ReLU), "relu6": _activation(nn.ReLU6), "hardtanh": _hardtanh,
    "gelu": _activation(nn.GELU, "approximate"), "silu": _activation(nn.SiLU),
    "sigmoid": _activation(nn.Sigmoid), "tanh": _activation(nn.Tanh),
    "hardswish": _activation(nn.Hardswish), "hardsigmoid": _activation(nn.Hardsigmoid),
    "mish": _activation(nn.Mish), "leaky_relu": _activation(nn.LeakyReLU, "negative_slope"),
}  # fmt: skip
for _rank in (1, 2, 3):
    LAYERS[f"conv{_rank}d"] = _convolution((nn.Conv1d, nn.Conv2d, nn.Conv3d))
    LAYERS[f"conv_transpose{_rank}d"] = _convolution(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    )
    LAYERS[f"max_pool{_rank}d"] = _pool(MAXIMA, "kernel_size", "stride", "padding", "dilation")
    LAYERS[f"avg_pool{_rank}d"] = _pool(MEANS, "kernel_size", "stride", "padding")
    LAYERS[f"adaptive_avg_pool{_rank}d"] = _pool(ADAPTIVE, "output_size")
