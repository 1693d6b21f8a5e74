"""Quantization of the int8 kernels: parameters, operator arguments, checks and rounding.

Its CUDA half is kernels/quantized.cuh. A quantized value q represents (q - zero) · scale.
Activations are uint8 or int8, weights int8 with zero point 0 and a scale per channel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import KernelError
from .activation import ACTIVATIONS, check_activation
from .launch import Argument, DeclinedError, aligned

INTEGERS = {torch.uint8: "uint8", torch.int8: "int8"}
FLOATS = {torch.float32: "float", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# activations applied by the rounding itself
CLAMPS = {"none": (-np.inf, np.inf), "relu": (0.0, np.inf), "relu6": (0.0, 6.0)}
WIDTH = 16  # channels per vector load
EXACT_IN_FP32 = 1 << 24  # from here on fp32 does not represent every integer


class QuantParams(NamedTuple):
    """Scale and zero point of quantized values."""

    scale: float
    zero: int = 0


class Int8Inputs(NamedTuple):
    """The arguments of an int8 operator, in its order."""

    x: Tensor
    zero: int
    weight: Tensor
    scales: Tensor
    sums: Tensor | None
    bias: Tensor | None
    residual: Tensor | None
    residual_scale: float
    residual_zero: int
    out_scale: float
    out_zero: int
    dtype: torch.dtype
    activation: str
    stride: int = 1
    padding: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether the output is quantized too."""
        return self.dtype in INTEGERS


SCHEMA = (
    "Tensor x, int zero, Tensor weight, Tensor scales, Tensor? sums, Tensor? bias, "
    "Tensor? residual, float residual_scale, int residual_zero, float out_scale, int out_zero, "
    "ScalarType dtype, str activation"
)


def operator_arguments(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    *,
    zero: int,
    sums: Tensor | None,
    residual_params: QuantParams | None,
    into: QuantParams | torch.dtype,
    activation: str,
) -> tuple[Any, ...]:
    """A call's arguments in the operator's order."""
    if (residual is None) != (residual_params is None):
        raise KernelError(
            "A quantized residual needs its quantization, as residual= and residual_params=; pass "
            "both or neither."
        )
    default = QuantParams(1.0)
    params = residual_params or default
    out = into if isinstance(into, QuantParams) else default
    dtype = x.dtype if isinstance(into, QuantParams) else into
    return x, zero, weight, scales, sums, bias, residual, *params, *out, dtype, activation


def check(kernel: str, inputs: Int8Inputs, channels: int, shape: tuple[int, ...]) -> None:
    """Raise if the arguments do not fit the channels and the output's shape."""
    dtype, supported = inputs.x.dtype, ", ".join(map(str, INTEGERS))
    if dtype not in INTEGERS or inputs.weight.dtype != torch.int8:
        raise KernelError(
            f"{kernel} takes x in {supported} and a weight in torch.int8, not {dtype} and "
            f"{inputs.weight.dtype}."
        )
    columns = {
        "scales": (inputs.scales, True),
        "sums": (inputs.sums, False),
        "bias": (inputs.bias, True),
    }
    for name, (column, is_float) in columns.items():
        if column is not None and (
            tuple(column.shape) != (channels,) or column.is_floating_point() != is_float
        ):
            raise KernelError(
                f"{kernel} takes {name} for each of {channels} channels, not {tuple(column.shape)} "
                f"in {column.dtype}."
            )
    if inputs.residual is not None and (
        tuple(inputs.residual.shape) != shape or inputs.residual.dtype != dtype
    ):
        raise KernelError(
            f"{kernel} adds a residual of {shape} in {dtype}, not {tuple(inputs.residual.shape)} "
            f"in {inputs.residual.dtype}."
        )
    if inputs.dtype not in FLOATS and inputs.dtype != dtype:
        raise KernelError(
            f"{kernel} returns values quantized as x, in {dtype}, or floats, not {inputs.dtype}."
        )
    ends = torch.iinfo(dtype)
    for zero in (inputs.zero, inputs.residual_zero, inputs.out_zero):
        if not (zero == 0 or ends.min <= zero <= ends.max):
            raise KernelError(
                f"{kernel} takes zero points within {dtype}, from {ends.min} to {ends.max}, "
                f"not {zero}."
            )
    if not inputs.out_scale > 0:
        raise KernelError(f"{kernel} takes an output scale above 0, not {inputs.out_scale}.")
    check_activation(kernel, inputs.activation)


def exact_dtype(count: int) -> torch.dtype:
    """The dtype in which the sum of so many products of quantized values and weights is exact."""
    return torch.float32 if count * 255 * 128 < EXACT_IN_FP32 else torch.float64


def float_residual(inputs: Int8Inputs) -> Tensor | float:
    """The dequantized residual, in the dtype of the scales."""
    if inputs.residual is None:
        return 0.0
    return (inputs.residual.to(inputs.scales.dtype) - inputs.residual_zero) * inputs.residual_scale


def apply_activation(inputs: Int8Inputs, values: Tensor) -> Tensor:
    """Apply the activation to float values."""
    return ACTIVATIONS[inputs.activation](values)


def rounded(inputs: Int8Inputs, values: Tensor) -> Tensor:
    """The float output, rounded or cast to the output's dtype."""
    if not inputs.is_quantized:
        return values.to(inputs.dtype)
    ends = torch.iinfo(inputs.dtype)
    return (
        (values / inputs.out_scale)
        .round()
        .add(inputs.out_zero)
        .clamp(ends.min, ends.max)
        .to(inputs.dtype)
    )


def int8_entry(kernel: str, inputs: Int8Inputs, *sizes: int, is_last: bool) -> str:
    """The template with its arguments; a clamp as last activation is applied by the rounding."""
    if inputs.scales.dtype != torch.float32 or (
        inputs.bias is not None and inputs.bias.dtype != torch.float32
    ):
        raise DeclinedError("it takes scales and bias in torch.float32")
    activation = "none" if _is_clamped(inputs, is_last) else inputs.activation
    dtypes = INTEGERS[inputs.x.dtype], (INTEGERS | FLOATS)[inputs.dtype]
    return f"{kernel}<{', '.join((*dtypes, *map(str, sizes), activation.upper()))}>"


def channel_arguments(inputs: Int8Inputs) -> tuple[Argument, Argument, Argument]:
    """Scales, sums and bias as a kernel takes them; missing sums are computed if a zero point needs
    them.
    """
    sums = inputs.sums
    if inputs.zero and sums is None:
        sums = weight_sums(inputs.weight)
    return (
        aligned(inputs.scales.contiguous()),
        aligned(sums.int().contiguous()) if inputs.zero and sums is not None else None,
        None if inputs.bias is None else aligned(inputs.bias.contiguous()),
    )


def weight_sums(weight: Tensor) -> Tensor:
    """The sum of each channel's weights, which corrects integer sums for a zero point."""
    return weight.flatten(1).sum(1, dtype=torch.int32)


def scalar_arguments(inputs: Int8Inputs, *, is_last: bool) -> tuple[Argument, ...]:
    """A kernel's last arguments: x's zero point, the residual's quantization, and how to round the
    output.
    """
    offset = 128 if inputs.x.dtype == torch.int8 else 0  # a kernel works on 0 … 255
    out_zero, inverse = inputs.out_zero + offset, np.float32(1 / inputs.out_scale)
    low, high = CLAMPS[inputs.activation] if _is_clamped(inputs, is_last) else CLAMPS["none"]
    return (
        np.int32(inputs.zero),
        np.float32(inputs.residual_scale if inputs.residual is not None else 0.0),
        np.int32(inputs.residual_zero + offset),
        inverse,
        np.float32(max(-out_zero, low)),
        np.float32(min(255 - out_zero, float(np.float32(high) * inverse))),
        np.int32(out_zero),
    )


def _is_clamped(inputs: Int8Inputs, is_last: bool) -> bool:
    return inputs.is_quantized and is_last and inputs.activation in CLAMPS
