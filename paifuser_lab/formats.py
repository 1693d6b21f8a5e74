"""Formats: what each keeps of a tensor, and how values are rounded to it. Pure arithmetic,
used to predict and to run alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

# weights of fewer than eight bits share a scale with so many neighbours, where their number divides
GROUP = 32
FLOATS: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
AUTOCAST: dict[str, torch.dtype] = {
    "amp-bf16": torch.bfloat16,
    "amp-fp16": torch.float16,
}  # weights stay, operators choose
NAMES = (
    *FLOATS,
    "int8",
    "fp8",
    "int8-weights",
    "int4-weights",
)  # what a layer can run in; lower precision can only be estimated
FP8 = torch.float8_e4m3fn  # four bits of exponent, three of mantissa
MOST_FP8 = torch.finfo(FP8).max
WEIGHTS_ONLY = re.compile(r"int([2-8])-weights")


@dataclass(frozen=True)
class Format:
    """A format: the dtype of weights, and of a layer's inputs where they are rounded too."""

    name: str
    weight_bits: int
    dtype: torch.dtype | None = None  # of a floating-point format
    rounds_inputs: bool = False

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return self.dtype is not None


def format_of(name: str) -> Format:
    """The format of a name: 'bf16', 'int8' (weights and inputs), 'int4-weights' …"""
    if name in FLOATS:
        return Format(name, FLOATS[name].itemsize * 8, FLOATS[name], rounds_inputs=name != "fp32")
    if name in AUTOCAST:
        return Format(name, 32, AUTOCAST[name], rounds_inputs=True)
    if name in ("int8", "fp8"):
        return Format(name, 8, rounds_inputs=True)
    if found := WEIGHTS_ONLY.fullmatch(name):
        return Format(name, int(found[1]))
    raise ValueError(f"{name!r} is no format; there are {', '.join((*NAMES, *AUTOCAST))}")


@dataclass(frozen=True)
class Quantized:
    """Integers and their scales; `channel` is the dimension with a scale for each index."""

    values: Tensor  # int8, in the weight's shape
    scales: Tensor  # (channels, groups)
    channel: int

    def dequantized(self) -> Tensor:
        """The real values that the integers represent."""
        rows = self.values.transpose(0, self.channel)
        floats = rows.to(self.scales.dtype)  # many times faster than a product of int8 and fp32
        grouped = floats.reshape(*self.scales.shape, -1) * self.scales.unsqueeze(-1)
        return grouped.reshape(rows.shape).transpose(0, self.channel)


def quantize(weight: Tensor, bits: int, *, channel: int = 0) -> Quantized:
    """Round a weight to integers, symmetric around zero: a scale a channel, and below eight
    bits one a group of neighbours.
    """
    return with_scales(weight, scales_of(weight, bits, channel=channel), bits, channel=channel)


def scales_of(weight: Tensor, bits: int, *, channel: int = 0) -> Tensor:
    """The scales (channels, groups) that map the largest weight of each group to the largest
    integer; 1 where all are zero.
    """
    rows = weight.detach().transpose(0, channel)
    inputs = rows[0].numel()
    groups = inputs // GROUP if bits < 8 and inputs % GROUP == 0 else 1
    scales = rows.reshape(rows.shape[0], groups, -1).abs().amax(dim=-1) / most_steps(bits)
    return torch.where(scales > 0, scales, torch.ones_like(scales))


def with_scales(weight: Tensor, scales: Tensor, bits: int, *, channel: int = 0) -> Quantized:
    """A weight as integers with these scales."""
    most = most_steps(bits)
    rows = weight.detach().transpose(0, channel)
    grouped = rows.reshape(*scales.shape, -1)
    values = (grouped / scales.unsqueeze(-1)).round().clamp(-most, most).to(torch.int8)
    return Quantized(values.reshape(rows.shape).transpose(0, channel).contiguous(), scales, channel)


def most_steps(bits: int) -> int:
    """The largest whole number of so many bits, symmetric around zero."""
    return int(2 ** (bits - 1) - 1)


def rounded(weight: Tensor, name: str, *, channel: int = 0) -> Tensor:
    """A weight as it is after a format has rounded it, in the type it had."""
    number = format_of(name)
    if number.dtype is not None:
        return weight.detach().to(number.dtype).to(weight.dtype)
    if name == "fp8":
        return fp8_rounded(
            weight.detach(), tuple(dim for dim in range(weight.ndim) if dim != channel)
        )
    return quantize(weight, number.weight_bits, channel=channel).dequantized()


def to_fp8(values: Tensor, dims: int | tuple[int, ...] = -1) -> tuple[Tensor, Tensor]:
    """Values in fp8, and the scales at which the largest along some dimensions is the largest that
    it has; 1 where all are zero.
    """
    values = values.float()
    scales = values.abs().amax(dim=dims, keepdim=True) / MOST_FP8
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    return (values / scales).to(FP8), scales


def fp8_rounded(values: Tensor, dims: int | tuple[int, ...] = -1) -> Tensor:
    """Values as fp8 leaves them, scaled along some dimensions, in the type they had."""
    small, scales = to_fp8(values, dims)
    return (small.float() * scales).to(values.dtype)


def weight_bytes(weight: Tensor, name: str, *, channel: int = 0) -> int:
    """What a weight takes in a format, its scales included."""
    number = format_of(name)
    if number.is_float:
        return weight.numel() * number.weight_bits // 8
    inputs = weight.numel() // max(weight.shape[channel], 1)
    groups = inputs // GROUP if number.weight_bits < 8 and inputs % GROUP == 0 else 1
    return -(-weight.numel() * number.weight_bits // 8) + 4 * weight.shape[channel] * groups


@dataclass(frozen=True)
class Range:
    """What values lie between, and the 256 steps that stand for them; zero is always one of
    them.
    """

    low: float
    high: float

    @property
    def scale(self) -> float:
        """The width of a step; 1 for what is always zero."""
        return (max(self.high, 0.0) - min(self.low, 0.0)) / 255 or 1.0

    @property
    def zero(self) -> int:
        """The step that stands for zero."""
        return min(255, max(0, round(-min(self.low, 0.0) / self.scale)))

    def step(self, value: float) -> int:
        """The step that stands for a number, or is nearest to it."""
        return min(255, max(0, round(value / self.scale) + self.zero))

    def rounded(self, values: Tensor) -> Tensor:
        """Values as they are after they went through the 256 steps."""
        steps = (values / self.scale).round().add(self.zero).clamp(0, 255)
        return (steps - self.zero) * self.scale
