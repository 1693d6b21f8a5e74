"""Quantization of the int8 kernels: parameters, operator arguments, checks and rounding.

Its CUDA half is kernels/quantized.cuh. A quantized value q represents (q - zero) · scale.
Activations are uint8 or int8, weights int8 with zero point 0 and a scale per channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import KernelError
from .activation import ACTIVATIONS, check_activation
from .kernel import DeclinedError, require_shape

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


@dataclass(frozen=True)
class Int8Inputs:
    """The arguments that every int8 operator has first, in its order."""

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

    @property
    def is_quantized(self) -> bool:
        """Whether the output is quantized too."""
        return self.dtype in INTEGERS

    def sum_exactly(self, multiply: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The products of x and weight, summed without error, in the dtype of the scales."""
        exact = exact_dtype(self.weight[0].numel())
        sums = multiply(self.x.to(exact) - self.zero, self.weight.to(exact))
        return sums.to(self.scales.dtype)

    def activated(self, values: Tensor) -> Tensor:
        """Float values after the activation."""
        return ACTIVATIONS[self.activation](values)

    def float_residual(self) -> Tensor | float:
        """The dequantized residual, in the dtype of the scales; 0 if there is none."""
        if self.residual is None:
            return 0.0
        return (self.residual.to(self.scales.dtype) - self.residual_zero) * self.residual_scale

    def rounded(self, values: Tensor) -> Tensor:
        """The float output, rounded or cast to the output's dtype."""
        if not self.is_quantized:
            return values.to(self.dtype)
        ends = torch.iinfo(self.dtype)
        steps = (values / self.out_scale).round().add(self.out_zero)
        return steps.clamp(ends.min, ends.max).to(self.dtype)


def operator_arguments(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
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
    params = residual_params or QuantParams(1.0)
    out, dtype = (into, x.dtype) if isinstance(into, QuantParams) else (QuantParams(1.0), into)
    return x, zero, weight, scales, sums, bias, residual, *params, *out, dtype, activation


def check(kernel: str, inputs: Int8Inputs, shape: tuple[int, ...], channels: int) -> None:
    """Raise if the arguments do not fit the output's shape and channels."""
    dtype, residual = inputs.x.dtype, inputs.residual
    if dtype not in INTEGERS or inputs.weight.dtype != torch.int8:
        raise KernelError(
            f"{kernel} takes x in {', '.join(map(str, INTEGERS))} and a weight in torch.int8, not "
            f"{dtype} and {inputs.weight.dtype}."
        )
    for name, is_float in (("scales", True), ("sums", False), ("bias", True)):
        column: Tensor | None = getattr(inputs, name)
        require_shape(kernel, name, column, (channels,))
        if column is not None and column.is_floating_point() != is_float:
            kind = "floats" if is_float else "integers"
            raise KernelError(f"{kernel} takes {name} in {kind}, not in {column.dtype}.")
    require_shape(kernel, "a residual", residual, shape)
    if residual is not None and residual.dtype != dtype:
        raise KernelError(f"{kernel} takes a residual in {dtype}, not in {residual.dtype}.")
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


def template(inputs: Int8Inputs, *sizes: int, is_last: bool) -> tuple[str | int, ...]:
    """The template's arguments; a clamp as last activation is applied by the rounding."""
    for column in (inputs.scales, inputs.bias):
        if column is not None and column.dtype != torch.float32:
            raise DeclinedError("it takes scales and bias in torch.float32")
    activation = "none" if _is_clamped(inputs, is_last) else inputs.activation
    dtypes = INTEGERS[inputs.x.dtype], (INTEGERS | FLOATS)[inputs.dtype]
    return *dtypes, *sizes, activation.upper()


def columns(inputs: Int8Inputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Scales, sums and bias as a kernel reads them; sums are needed with a zero point alone."""
    sums = None
    if inputs.zero:
        sums = weight_sums(inputs.weight) if inputs.sums is None else inputs.sums.int()
    return inputs.scales, sums, inputs.bias


def weight_sums(weight: Tensor) -> Tensor:
    """The sum of each channel's weights, which corrects integer sums for a zero point."""
    return weight.flatten(1).sum(1, dtype=torch.int32)


def scalars(inputs: Int8Inputs, *, is_last: bool) -> tuple[int | float | np.float32, ...]:
    """The last arguments: zero point, the residual's quantization, and how to round."""
    offset = 128 if inputs.x.dtype == torch.int8 else 0  # a kernel works on 0 … 255
    out_zero, inverse = inputs.out_zero + offset, np.float32(1 / inputs.out_scale)
    low, high = CLAMPS[inputs.activation] if _is_clamped(inputs, is_last) else CLAMPS["none"]
    return (
        inputs.zero,
        float(inputs.residual_scale if inputs.residual is not None else 0.0),
        inputs.residual_zero + offset,
        inverse,
        float(max(-out_zero, low)),
        min(255.0 - out_zero, float(np.float32(high) * inverse)),
        out_zero,
    )


def _is_clamped(inputs: Int8Inputs, is_last: bool) -> bool:
    return inputs.is_quantized and is_last and inputs.activation in CLAMPS
