"""Whole numbers of eight bits that stand for numbers, as the int8 kernels take and make them;
kernels/steps.cuh is the other half.

A step stands for (step - zero) · scale. Steps are uint8 or int8, weights int8 around zero with a
scale for each channel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import KernelError
from .activation import ACTIVATIONS, known
from .launch import Argument, DeclinedError, aligned

KINDS = {torch.uint8: "uint8", torch.int8: "int8"}
NUMBERS = {torch.float32: "float", torch.bfloat16: "bfloat16", torch.float16: "float16"}
CLAMPS = {
    "none": (-np.inf, np.inf),
    "relu": (0.0, np.inf),
    "relu6": (0.0, 6.0),
}  # what rounding does on its way
WIDTH = 16  # channels that are read at once
WHOLE_IN_FP32 = 1 << 24  # from here on fp32 leaves whole numbers out


class Steps(NamedTuple):
    """How far apart steps are, and which of them stands for zero."""

    scale: float
    zero: int = 0


class Given(NamedTuple):
    """What an operator on steps is given, in its order."""

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
    def makes_steps(self) -> bool:
        """Whether the answer is steps too."""
        return self.dtype in KINDS


SCHEMA = (
    "Tensor x, int zero, Tensor weight, Tensor scales, Tensor? sums, Tensor? bias, Tensor? "
    "residual, "
    "float residual_scale, int residual_zero, float out_scale, int out_zero, ScalarType dtype, str "
    "activation"
)


def given_by(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    *,
    zero: int,
    sums: Tensor | None,
    of_residual: Steps | None,
    into: Steps | torch.dtype,
    activation: str,
) -> tuple[Any, ...]:
    """What a person says of steps, in the operators' order."""
    if (residual is None) != (of_residual is None):
        raise KernelError(
            "A residual in steps comes with what its steps are, as residual= and of_residual=; "
            "give both or neither."
        )
    rest, out = of_residual or Steps(1.0), into if isinstance(into, Steps) else Steps(1.0)
    dtype = x.dtype if isinstance(into, Steps) else into
    return x, zero, weight, scales, sums, bias, residual, *rest, *out, dtype, activation


def check(kernel: str, given: Given, channels: int, shape: tuple[int, ...]) -> None:
    """Refuse what does not fit together, once weight and shape of the answer are known to."""
    steps, kind = given.x.dtype, ", ".join(str(one) for one in KINDS)
    if steps not in KINDS or given.weight.dtype != torch.int8:
        raise KernelError(
            f"{kernel} takes x in {kind} and a weight in torch.int8, not {steps} and "
            f"{given.weight.dtype}."
        )
    columns = {
        "scales": (given.scales, True),
        "sums": (given.sums, False),
        "bias": (given.bias, True),
    }
    for name, (column, is_number) in columns.items():
        if column is not None and (
            tuple(column.shape) != (channels,) or column.is_floating_point() != is_number
        ):
            raise KernelError(
                f"{kernel} takes {name} for each of {channels} channels, not {tuple(column.shape)} "
                f"in {column.dtype}."
            )
    if given.residual is not None and (
        tuple(given.residual.shape) != shape or given.residual.dtype != steps
    ):
        raise KernelError(
            f"{kernel} adds a residual of {shape} in {steps}, not {tuple(given.residual.shape)} in "
            f"{given.residual.dtype}."
        )
    if given.dtype not in NUMBERS and given.dtype != steps:
        raise KernelError(
            f"{kernel} answers in the steps of x, {steps}, or in numbers, not in {given.dtype}."
        )
    ends = torch.iinfo(steps)
    for zero in (given.zero, given.residual_zero, given.out_zero):
        if not (zero == 0 or ends.min <= zero <= ends.max):
            raise KernelError(
                f"{kernel} takes zero points that {steps} has, from {ends.min} to {ends.max}, not "
                f"{zero}."
            )
    if not given.out_scale > 0:
        raise KernelError(f"{kernel} takes a scale of the answer above 0, not {given.out_scale}.")
    known(kernel, given.activation)


def exact_in(count: int) -> torch.dtype:
    """The type in which a sum of so many products of steps and weights is exact."""
    return torch.float32 if count * 255 * 128 < WHOLE_IN_FP32 else torch.float64


def residual_of(given: Given) -> Tensor | float:
    """The numbers that the residual stands for, in the type of the scales."""
    if given.residual is None:
        return 0.0
    return (given.residual.to(given.scales.dtype) - given.residual_zero) * given.residual_scale


def activated(given: Given, numbers: Tensor) -> Tensor:
    """What the activation makes of numbers."""
    return ACTIVATIONS[given.activation](numbers)


def rounded(given: Given, numbers: Tensor) -> Tensor:
    """The answer, of the numbers that it is to be."""
    if not given.makes_steps:
        return numbers.to(given.dtype)
    ends = torch.iinfo(given.dtype)
    return (
        (numbers / given.out_scale)
        .round()
        .add(given.out_zero)
        .clamp(ends.min, ends.max)
        .to(given.dtype)
    )


def entry_of(kernel: str, given: Given, *sizes: int, is_last: bool) -> str:
    """The template with its arguments; an activation that is last and a clamp is left to the
    rounding.
    """
    if given.scales.dtype != torch.float32 or (
        given.bias is not None and given.bias.dtype != torch.float32
    ):
        raise DeclinedError("it takes scales and bias in torch.float32")
    activation = "none" if _is_clamped(given, is_last) else given.activation
    kinds = KINDS[given.x.dtype], (KINDS | NUMBERS)[given.dtype]
    return f"{kernel}<{', '.join((*kinds, *map(str, sizes), activation.upper()))}>"


def columns_of(given: Given) -> tuple[Argument, Argument, Argument]:
    """Scales, sums and bias as a kernel takes them; sums are added up here where a zero point wants
    them and nobody brought them.
    """
    sums = given.sums
    if given.zero and sums is None:
        sums = sums_of(given.weight)
    return (
        aligned(given.scales.contiguous()),
        aligned(sums.int().contiguous()) if given.zero and sums is not None else None,
        None if given.bias is None else aligned(given.bias.contiguous()),
    )


def sums_of(weight: Tensor) -> Tensor:
    """The sum of each channel's weights, by which a zero point is taken out of whole sums."""
    return weight.flatten(1).sum(1, dtype=torch.int32)


def numbers_of(given: Given, *, is_last: bool) -> tuple[Argument, ...]:
    """The last arguments of a kernel: x's zero point, the residual's steps, and how the answer is
    rounded.
    """
    turn = 128 if given.x.dtype == torch.int8 else 0  # inside of a kernel a step is 0 … 255
    out_zero, inverse = given.out_zero + turn, np.float32(1 / given.out_scale)
    low, high = CLAMPS[given.activation] if _is_clamped(given, is_last) else CLAMPS["none"]
    return (
        np.int32(given.zero),
        np.float32(given.residual_scale if given.residual is not None else 0.0),
        np.int32(given.residual_zero + turn),
        inverse,
        np.float32(max(-out_zero, low)),
        np.float32(min(255 - out_zero, float(np.float32(high) * inverse))),
        np.int32(out_zero),
    )


def _is_clamped(given: Given, is_last: bool) -> bool:
    return given.makes_steps and is_last and given.activation in CLAMPS
