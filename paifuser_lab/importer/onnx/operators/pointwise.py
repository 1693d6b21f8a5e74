"""Operators on each element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...limits import NotConvertibleError
from ...tree import Constant, Traced, Value
from ..proto import DTYPES
from .registry import OPERATORS, Call, dtype_of, operator

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Asin": torch.asin, "Atan": torch.atan,
    "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "IsNaN": torch.isnan, "Log": torch.log, "Neg": torch.neg,
    "Not": torch.logical_not, "Reciprocal": torch.reciprocal, "Round": torch.round,
    "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": F.softplus,
    "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "Add": torch.add, "And": torch.logical_and, "Equal": torch.eq, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "Mul": torch.mul,
    "Or": torch.logical_or, "Pow": torch.pow, "Sub": torch.sub, "Xor": torch.logical_xor,
}  # fmt: skip
FOLDED: dict[str, Callable[[Any, Any], Tensor]] = {
    "Max": torch.maximum, "Min": torch.minimum, "Sum": torch.add,
}  # fmt: skip
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "HardSwish": nn.Hardswish, "Mish": nn.Mish, "Relu": nn.ReLU, "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
}  # fmt: skip


def _unary(call: Call) -> Value:
    return call.call(UNARY[call.node.op_type], call.value(0))  # type: ignore[no-any-return]


def _binary(call: Call) -> Value:
    function = BINARY[call.node.op_type]
    left, right = call.value(0), call.value(1)
    if isinstance(left, Traced) and call.node.op_type not in ("And", "Or", "Xor"):
        return call.call(function, left, call.operand(1))  # type: ignore[no-any-return]
    if isinstance(right, Traced) and call.node.op_type in ("Add", "Mul"):
        return call.call(function, right, call.operand(0))  # type: ignore[no-any-return]
    return call.call(function, left, right)  # type: ignore[no-any-return]


def _folded(call: Call) -> Value:
    result = call.value(0)
    for index in range(1, len(call.inputs)):
        result = call.call(FOLDED[call.node.op_type], result, call.value(index))
    return result


def _activation(call: Call) -> Value:
    return activation(call, ACTIVATIONS[call.node.op_type]())


for _table, _rule in (
    (UNARY, _unary), (BINARY, _binary), (FOLDED, _folded), (ACTIVATIONS, _activation),
):  # fmt: skip
    OPERATORS.update(dict.fromkeys(_table, _rule))


def activation(call: Call, layer: nn.Module) -> Value:
    """An activation as a layer, or at once on a constant."""
    if isinstance(call.inputs[0], Constant):
        return call.call(layer, call.value(0))  # type: ignore[no-any-return]
    return call.tree.layer(call.path, layer, {}, call.value(0))  # type: ignore[no-any-return]


@operator("Div")
def div(call: Call) -> Value:
    """A quotient; that of integers is cut to an integer."""
    is_float = dtype_of(call.value(0)).is_floating_point
    how = None if is_float else "trunc"
    left = call.value(0)
    right = call.operand(1) if isinstance(left, Traced) else call.value(1)
    return call.call(torch.div, left, right, rounding_mode=how)  # type: ignore[no-any-return]


@operator("Mod")
def mod(call: Call) -> Value:
    """A remainder, with the sign of the divisor, or of the dividend with `fmod`."""
    function = torch.fmod if call.attribute("fmod", 0) else torch.remainder
    return call.call(function, call.value(0), call.value(1))  # type: ignore[no-any-return]


@operator("Identity", "Dropout")
def identity(call: Call) -> Value:
    """The input itself: dropout does nothing in inference."""
    if len([name for name in call.node.output if name]) > 1:
        raise NotConvertibleError("its mask is read")
    if call.has(2):
        mode = call.inputs[2]
        if not isinstance(mode, Constant) or bool(mode.tensor):
            raise NotConvertibleError("it is exported in training mode")
    return call.value(0)


@operator("Clip")
def clip(call: Call) -> Value:
    """Values between two limits; ReLU6 where these are 0 and 6."""
    low, high = (_limit(call, index, name) for index, name in ((1, "min"), (2, "max")))
    if low is None and high is None:
        return call.value(0)
    if (low, high) == (0, 6):
        return activation(call, nn.ReLU6())
    return call.call(torch.clamp, call.value(0), low, high)  # type: ignore[no-any-return]


def _limit(call: Call, index: int, name: str) -> Any:
    if name in call.attributes:
        return float(call.attributes[name])
    return call.operand(index) if call.has(index) else None


@operator("Gelu")
def gelu(call: Call) -> Value:
    return activation(call, nn.GELU(call.flag("approximate", ("none", "tanh"), "none")))


@operator("Silu", "Swish")
def silu(call: Call) -> Value:
    call.flag("alpha", (1.0,), 1.0)
    return activation(call, nn.SiLU())


@operator("LeakyRelu", "Elu", "Celu")
def leaky(call: Call) -> Value:
    if call.node.op_type == "LeakyRelu":
        return activation(call, nn.LeakyReLU(float(call.attribute("alpha", 0.01))))
    kind = nn.ELU if call.node.op_type == "Elu" else nn.CELU
    return activation(call, kind(float(call.attribute("alpha", 1.0))))


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Value:
    alpha, beta = float(call.attribute("alpha", 0.2)), float(call.attribute("beta", 0.5))
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return activation(call, nn.Hardsigmoid())
    line = call.call(torch.add, call.call(torch.mul, call.value(0), alpha), beta)
    return call.call(torch.clamp, line, 0.0, 1.0)  # type: ignore[no-any-return]


@operator("PRelu")
def prelu(call: Call) -> Value:
    x, slope = call.value(0), call.value(1)
    negative = call.call(torch.mul, call.call(torch.clamp, x, None, 0), slope)
    return call.call(torch.add, call.call(F.relu, x), negative)  # type: ignore[no-any-return]


@operator("Cast")
def cast(call: Call) -> Value:
    dtype = DTYPES.get(call.attribute("to"))
    if dtype is None:
        raise NotConvertibleError("it casts to a type that torch lacks")
    return _cast(call, dtype)


@operator("CastLike")
def cast_like(call: Call) -> Value:
    return _cast(call, dtype_of(call.value(1)))


def _cast(call: Call, dtype: torch.dtype) -> Value:
    value = call.value(0)
    same = dtype_of(value) == dtype
    return value if same else call.call(Tensor.to, value, dtype)


@operator("Where")
def where(call: Call) -> Value:
    return call.call(torch.where, call.value(0), call.value(1), call.value(2))  # type: ignore[no-any-return]


@operator("Softmax", "LogSoftmax")
def softmax(call: Call) -> Value:
    """Softmax along a dimension; before opset 13, over all dimensions from it on."""
    function = F.softmax if call.node.op_type == "Softmax" else F.log_softmax
    rank = call.rank(0)
    axis = int(call.attribute("axis", -1 if call.opset >= 13 else 1))
    if call.opset >= 13 or axis % rank == rank - 1:
        return call.call(function, call.value(0), dim=axis)  # type: ignore[no-any-return]
    flat = call.call(torch.flatten, call.value(0), axis)
    result = call.call(function, flat, dim=-1)
    return call.call(torch.reshape, result, list(call.shape(0)))  # type: ignore[no-any-return]


@operator("QuantizeLinear")
def quantize_linear(call: Call) -> Value:
    """Integers of a scale and a zero point, as a runtime rounds them."""
    dtype = dtype_of(call.value(2)) if call.has(2) else torch.uint8
    if dtype not in (torch.int8, torch.uint8):
        raise NotConvertibleError("it rounds to a type of other than 8 bits")
    scale, zero = _along(call, 1), _along(call, 2) if call.has(2) else None
    divided = call.call(torch.round, call.call(torch.div, call.value(0), scale))
    if zero is not None:
        divided = call.call(torch.add, divided, call.call(Tensor.to, zero, dtype_of(divided)))
    info = torch.iinfo(dtype)
    return call.call(Tensor.to, call.call(torch.clamp, divided, info.min, info.max), dtype)  # type: ignore[no-any-return]


@operator("DequantizeLinear")
def dequantize_linear(call: Call) -> Value:
    """The numbers that integers of a scale and a zero point stand for."""
    if call.attribute("block_size", 0):
        raise NotConvertibleError("it has a scale for each block")
    scale = _along(call, 1)
    values = call.call(Tensor.to, call.value(0), dtype_of(scale))
    if call.has(2):
        zero = call.call(Tensor.to, _along(call, 2), dtype_of(scale))
        values = call.call(torch.sub, values, zero)
    return call.call(torch.mul, values, scale)  # type: ignore[no-any-return]


def _along(call: Call, index: int) -> Value:
    """A scale or a zero point, shaped so that it lies along the axis of the input."""
    value = call.value(index)
    if not isinstance(value, Constant) or value.tensor.ndim == 0:
        return value
    axis, rank = int(call.attribute("axis", 1)), call.rank(0)
    shape = [1] * rank
    shape[axis] = -1
    return Constant(value.tensor.reshape(shape) if value.tensor.numel() > 1 else value.tensor[0])
