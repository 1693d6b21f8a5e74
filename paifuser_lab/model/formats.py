"""Number formats, their precision and rounding: for predicted errors as in quantized layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

# weights below seven bits that share a scale, if the row's length is a multiple of it
GROUP = 32
GROUPED_BELOW = 7  # bits; int8 in reduced range has one scale per channel, as in its full range
MAX_INPUT, MAX_WEIGHT = 255, 127  # of a product in int8
MAX_REDUCED = 64  # twice this times the largest input is still below 2**15
FLOATS: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# weights keep their dtype, autocast chooses that of each operator
AUTOCAST: dict[str, torch.dtype] = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
HALVES = (torch.bfloat16, torch.float16)
# formats that a layer can run in; lower precision can only be estimated
NAMES = (*FLOATS, "int8", "fp8", "int8-weights", "int4-weights")
FP8 = torch.float8_e4m3fn  # four bits of exponent, three of mantissa
FP8_MAX = torch.finfo(FP8).max
WEIGHTS_ONLY = re.compile(r"int([2-8])-weights")


@dataclass(frozen=True)
class Format:
    """A number format: that of a layer's weights, and of its inputs if they are rounded too."""

    name: str
    weight_bits: int
    dtype: torch.dtype | None = None  # None for integers and fp8
    rounds_inputs: bool = False

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return self.dtype is not None


def format_of(name: str) -> Format:
    """Parse a format's name: 'bf16', 'int8' (weights and inputs), 'int4-weights' …"""
    if name in FLOATS:
        return Format(name, FLOATS[name].itemsize * 8, FLOATS[name], rounds_inputs=name != "fp32")
    if name in AUTOCAST:
        return Format(name, 32, AUTOCAST[name], rounds_inputs=True)
    if name in ("int8", "fp8"):
        return Format(name, 8, rounds_inputs=True)
    if match := WEIGHTS_ONLY.fullmatch(name):
        return Format(name, int(match[1]))
    raise ValueError(f"{name!r} is no format; there are {', '.join((*NAMES, *AUTOCAST))}")


@cache
def saturates() -> bool:
    """Whether this processor adds pairs of int8 products in 16 bits, where large ones saturate: so
    do x86 processors without VNNI, in oneDNN as in ONNX Runtime and OpenVINO.
    """
    if not torch._C._has_mkldnn:
        return False
    width = 64
    with _disable_current_modes():  # modes that count or record operators must not see this
        weights = torch.full((width, width), MAX_WEIGHT, dtype=torch.int8)
        quantized = torch.full((width, width), MAX_INPUT, dtype=torch.uint8)
        packed = torch.ops.onednn.qlinear_prepack(weights, [width, width])
        scales, zeros = torch.ones(width), torch.zeros(width, dtype=torch.int64)
        output = torch.ops.onednn.qlinear_pointwise(
            quantized, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    return float(output.min()) < MAX_INPUT * MAX_WEIGHT * width


def may_saturate(values: Tensor) -> bool:
    """Whether products of these int8 weights may saturate on this processor."""
    return saturates() and not is_reduced(values)


def is_reduced(values: Tensor) -> bool:
    """Whether these int8 weights are in reduced range, in which no product saturates."""
    return bool((values.abs() <= MAX_REDUCED).all())


def integer_bits(name: str, *, reduced_range: bool | None = None) -> int:
    """The bits that the integers of a format use. In reduced range int8's weights use seven, so
    that no processor saturates; by default they do where this processor would.
    """
    if name != "int8":
        return format_of(name).weight_bits
    return 7 if (saturates() if reduced_range is None else reduced_range) else 8


@dataclass(frozen=True)
class Quantized:
    """A quantized weight; `channel` is the dimension with scales for each index."""

    values: Tensor  # int8, in the weight's shape
    scales: Tensor  # (channels, groups)
    channel: int

    def dequantized(self) -> Tensor:
        """The weight as floating-point values."""
        rows = self.values.transpose(0, self.channel)
        floats = rows.to(self.scales.dtype)  # many times faster than a product of int8 and fp32
        grouped = floats.reshape(*self.scales.shape, -1) * self.scales.unsqueeze(-1)
        return grouped.reshape(rows.shape).transpose(0, self.channel)


def quantize(weight: Tensor, bits: int, *, channel: int = 0) -> Quantized:
    """Quantize a weight symmetrically, a scale per channel, or per group below seven bits."""
    return with_scales(weight, scales_of(weight, bits, channel=channel), bits, channel=channel)


def scales_of(weight: Tensor, bits: int, *, channel: int = 0) -> Tensor:
    """The scales (channels, groups) from largest weight to largest integer; 1 for zeros."""
    rows = weight.detach().transpose(0, channel)
    inputs = rows[0].numel()
    groups = group_count(inputs, bits)
    scales = rows.reshape(rows.shape[0], groups, -1).abs().amax(dim=-1) / most_steps(bits)
    return torch.where(scales > 0, scales, torch.ones_like(scales))


def group_count(inputs: int, bits: int) -> int:
    """How many groups of weights with a scale of their own a row of this length has."""
    return inputs // GROUP if bits < GROUPED_BELOW and inputs % GROUP == 0 else 1


def with_scales(weight: Tensor, scales: Tensor, bits: int, *, channel: int = 0) -> Quantized:
    """Quantize a weight with these scales."""
    most = most_steps(bits)
    rows = weight.detach().transpose(0, channel)
    grouped = rows.reshape(*scales.shape, -1)
    values = (grouped / scales.unsqueeze(-1)).round().clamp(-most, most).to(torch.int8)
    return Quantized(values.reshape(rows.shape).transpose(0, channel).contiguous(), scales, channel)


def most_steps(bits: int) -> int:
    """The largest integer of this many bits, symmetric around zero."""
    return int(2 ** (bits - 1) - 1)


def rounded(weight: Tensor, name: str, *, channel: int = 0) -> Tensor:
    """The weight rounded to a format, in its original dtype."""
    number_format = format_of(name)
    if number_format.dtype is not None:
        return weight.detach().to(number_format.dtype).to(weight.dtype)
    if name == "fp8":
        return fp8_rounded(
            weight.detach(), tuple(dim for dim in range(weight.ndim) if dim != channel)
        )
    return quantize(weight, integer_bits(name), channel=channel).dequantized()


def to_fp8(values: Tensor, dims: int | tuple[int, ...] = -1) -> tuple[Tensor, Tensor]:
    """Values in fp8, and the scales to its largest along `dims`; 1 where all are zero."""
    values = values.float()
    scales = values.abs().amax(dim=dims, keepdim=True) / FP8_MAX
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    return (values / scales).to(FP8), scales


def fp8_rounded(values: Tensor, dims: int | tuple[int, ...] = -1) -> Tensor:
    """Values rounded to fp8 with a scale along `dims`, in their original dtype."""
    small, scales = to_fp8(values, dims)
    return (small.float() * scales).to(values.dtype)


@dataclass(frozen=True)
class Range:
    """The range of values that uint8 quantization maps to 256 steps; zero is always one of them."""

    low: float
    high: float

    @property
    def scale(self) -> float:
        """The width of a step; 1 if all values are zero."""
        return (max(self.high, 0.0) - min(self.low, 0.0)) / 255 or 1.0

    @property
    def zero(self) -> int:
        """The zero point: the step of the value 0."""
        return min(255, max(0, round(-min(self.low, 0.0) / self.scale)))

    def step(self, value: float) -> int:
        """The step nearest to a value."""
        return min(255, max(0, round(value / self.scale) + self.zero))

    def rounded(self, values: Tensor) -> Tensor:
        """Values quantized to the 256 steps and dequantized again."""
        steps = (values / self.scale).round().add(self.zero).clamp(0, 255)
        return (steps - self.zero) * self.scale
