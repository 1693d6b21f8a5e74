"""Convolution and linear layers that compute in int8, on oneDNN's own operators; relu or a clamp
that follows is done on the way.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn
from torch.nn import functional as F

from ...formats import Quantized, Range, quantize
from ...model.layers import is_transposed_linear
from .. import arithmetic  # noqa: F401 (registers the operators with torch's FLOP counter)
from ..conversion import through_steps, to_steps
from . import int_mm, on_gpu, saturation
from .layer import QuantizedLayer, packed_zero_points
from .tensor import Int8Tensor

WHOLE = 2**31  # whole numbers of 32 bits are below
CONVOLVE = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
CONVOLVE_IMAGES = torch.ops.onednn.qconv2d_pointwise


@dataclass(frozen=True)
class Outlet:
    """How a layer hands its answer on: in int8 where the next layer reads that, and what is done to
    it before.
    """

    span: Range | None = None
    clamp: tuple[float, float | None] | None = None  # (0, None) is relu
    is_shared: bool = False  # others read it too, and are given what the steps leave of it

    @property
    def post_operation(self) -> tuple[str, list[float]]:
        """As oneDNN calls it."""
        if self.clamp is None:
            return "none", []
        low, high = self.clamp
        return (
            ("relu", [])
            if (low, high) == (0, None)
            else ("hardtanh", [low, float("inf") if high is None else high])
        )

    @property
    def steps_kept(self) -> tuple[int, int]:
        """The same on the steps themselves."""
        low, high = (None, None) if self.clamp is None else self.clamp
        assert self.span is not None
        return (0 if low is None else self.span.step(low)), (
            255 if high is None else self.span.step(high)
        )


class Int8Layer(QuantizedLayer):
    """Rounds what it is given to 256 steps, unless it comes so, and multiplies whole numbers."""

    def __init__(self, layer: nn.Module, weight: Quantized, span: Range) -> None:
        super().__init__(layer, weight, "int8")
        self.span = span
        self.outlet = Outlet()
        self.is_given_rounded = False  # to the range that it wants

    def forward(self, given: Tensor) -> Tensor:
        """A compiler or an exporter is shown the roundings, which it fuses itself; otherwise oneDNN
        computes.
        """
        if torch.compiler.is_compiling():
            return self._answered(self.product(*self._shown(given))).to(given.dtype)
        steps = self._steps(given)
        onward = self.outlet.span
        if onward is None or not (steps.device.type == "cpu" or on_gpu.hands_on(self, steps)):
            return self._answered(self.multiply(steps, 1.0, 0, given.dtype))
        return Int8Tensor(
            self.multiply(steps, onward.scale, onward.zero, torch.uint8), onward, given.dtype
        )

    def _answered(self, made: Tensor) -> Tensor:
        """Numbers, rounded where others read the rounding too."""
        onward, clamp = self.outlet.span, self.outlet.clamp
        if onward is None or not self.outlet.is_shared:
            return made
        return through_steps(made if clamp is None else made.clamp(*clamp), onward)

    def _steps(self, given: Tensor) -> Tensor:
        if isinstance(given, Int8Tensor):
            return (
                given.steps
                if given.written is None and given.span == self.span
                else to_steps(given.numbers(), self.span)
            )
        return to_steps(given, self.span)

    def _shown(self, given: Tensor) -> tuple[Tensor, Tensor]:
        """Input and weight through the roundings, as operators that compilers and exporters
        know.
        """
        rounded = (
            given.float() if self.is_given_rounded else through_steps(given.float(), self.span)
        )
        scales, zeros = self.scales[:, 0], torch.zeros_like(self.scales[:, 0], dtype=torch.int64)
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.values, scales, zeros, 0, -128, 127, torch.int8
        )
        return rounded, weight

    def _written(self, dtype: torch.dtype) -> torch.dtype:
        """The type in which oneDNN writes an answer; others are converted to from fp32."""
        if (
            dtype == torch.bfloat16
        ):  # which it writes everywhere, without AVX-512 a hundred times slower
            return dtype if torch.backends.cpu.get_cpu_capability() == "AVX512" else torch.float32
        return dtype if dtype == torch.uint8 else torch.float32

    @abstractmethod
    def product(self, given: Tensor, weight: Tensor) -> Tensor:
        """The layer's arithmetic on plain numbers."""

    @abstractmethod
    def multiply(self, steps: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        """The layer's arithmetic on whole numbers."""


class Int8Convolution(Int8Layer):
    """A convolution in one, two or three dimensions, groups and all."""

    def __init__(self, layer: Any, span: Range, numbers: Quantized | None = None) -> None:
        super().__init__(layer, numbers or quantize(layer.weight, 8), span)
        count = len(layer.kernel_size)
        padding = paddings(layer)
        assert padding is not None
        self.kernel_size, self.stride, self.dilation, self.groups = (
            layer.kernel_size,
            layer.stride,
            layer.dilation,
            layer.groups,
        )
        self.padding = padding
        self.in_channels, self.out_channels = layer.in_channels, layer.out_channels
        self._operator = CONVOLVE_IMAGES if count == 2 else torch.ops.onednn.qconv_pointwise

    def product(self, given: Tensor, weight: Tensor) -> Tensor:
        convolve = CONVOLVE[weight.ndim]
        return convolve(
            given, weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def multiply(self, steps: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        is_single = steps.ndim == self.values.ndim - 1
        steps = steps.unsqueeze(0) if is_single else steps
        if on_gpu.takes(self, steps):
            answer = on_gpu.multiply(self, steps, scale, zero, dtype)
            return answer.squeeze(0) if is_single else answer
        geometry = list(self.stride), list(self.padding), list(self.dilation), self.groups
        if self._is_split():
            steps = saturation.doubled(steps, self.groups)
        if self._packed is None:
            self._packed = self._pack(geometry, list(steps.shape))
        has_clamp = (
            self._operator is CONVOLVE_IMAGES
        )  # in one and three dimensions the operator does not clamp on the way
        operation, scalars = self.outlet.post_operation if has_clamp else ("none", [])
        given = steps, self.span.scale, self.span.zero, *self._packed, self.bias, *geometry
        made: Tensor = self._operator(
            *given, scale, zero, self._written(dtype), operation, scalars, ""
        ).to(dtype)
        if not has_clamp and dtype == torch.uint8:
            made.clamp_(*self.outlet.steps_kept)
        return made.squeeze(0) if is_single else made

    def _is_split(self) -> bool:
        """Whether products that are added in 16 bits could saturate; those of a single input are
        not added there.
        """
        return self.in_channels > self.groups and saturation.saturates()

    def _pack(self, geometry: tuple[Any, ...], shape: list[int]) -> tuple[Any, ...]:
        values = saturation.addends(self.values) if self._is_split() else self.values
        spans = self.span.scale, self.span.zero
        packed = torch.ops.onednn.qconv_prepack(values, self.scales[:, 0], *spans, *geometry, shape)
        if self._is_split():
            saturation.mark(packed)
        return packed, self.scales[:, 0].contiguous(), packed_zero_points(self.out_channels)


class Int8Linear(Int8Layer):
    """A linear layer, GPT-2's transposed one too."""

    def __init__(self, layer: Any, span: Range, numbers: Quantized | None = None) -> None:
        self.is_transposed = is_transposed_linear(layer)
        super().__init__(
            layer,
            numbers or quantize(layer.weight.t() if self.is_transposed else layer.weight, 8),
            span,
        )
        self._has_whole_bias = False  # known when it is packed
        self.out_features: int = self.values.shape[0]
        self.in_features: int = self.values.shape[1]

    @property
    def weight(self) -> Tensor:
        """The numbers that the weight stands for, in the order in which the layer had them."""
        return super().weight.t() if self.is_transposed else super().weight

    def product(self, given: Tensor, weight: Tensor) -> Tensor:
        return F.linear(given, weight, self._shown_bias())

    def _shown_bias(self) -> Tensor | None:
        """ONNX Runtime multiplies whole numbers only where the bias is whole numbers too, of the
        products' scale.
        """
        if (
            self.bias is None
            or not torch.compiler.is_exporting()
            or self._packed is None
            or not self._has_whole_bias
        ):
            return self.bias
        scales = self.scales[:, 0] * self.span.scale
        steps, zeros = (
            (self.bias / scales).round().to(torch.int32),
            torch.zeros_like(scales, dtype=torch.int64),
        )
        shown: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel(
            steps, scales, zeros, 0, -WHOLE, WHOLE - 1, torch.int32
        )
        return shown

    def multiply(self, steps: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        if on_gpu.takes(self, steps):
            return on_gpu.multiply(self, steps, scale, zero, dtype)
        rows = steps.reshape(-1, self.in_features)
        if steps.device.type != "cpu":  # where nobody hands on in int8
            made = int_mm.linear(rows, self.span, self.values, self.scales[:, 0], self.bias)
            return made.to(dtype).reshape(*steps.shape[:-1], self.out_features)
        if saturation.saturates():
            rows = saturation.doubled(rows)
        if self._packed is None:
            self._packed = self._pack(list(rows.shape))
            self._has_whole_bias = self.bias is not None and _is_whole(
                self.bias / (self.scales[:, 0] * self.span.scale)
            )
        given = rows, self.span.scale, self.span.zero, *self._packed, self.bias
        written = self._written(dtype)
        made = torch.ops.onednn.qlinear_pointwise(
            *given, scale, zero, written, *self.outlet.post_operation, ""
        ).to(dtype)
        answer: Tensor = made.reshape(*steps.shape[:-1], self.out_features)
        return answer

    def _pack(self, shape: list[int]) -> tuple[Any, ...]:
        values = saturation.addends(self.values) if saturation.saturates() else self.values
        packed = torch.ops.onednn.qlinear_prepack(values, shape)
        if saturation.saturates():
            saturation.mark(packed)
        return packed, self.scales[:, 0].contiguous(), packed_zero_points(self.out_features)


def paddings(layer: Any) -> tuple[int, ...] | None:
    """The zeros around what a convolution is given, as many on either side; None where it pads
    otherwise.
    """
    if layer.padding_mode != "zeros":
        return None
    if layer.padding == "valid":
        return (0,) * len(layer.kernel_size)
    if layer.padding != "same":
        return tuple(layer.padding)
    reach = [
        dilation * (size - 1)
        for dilation, size in zip(layer.dilation, layer.kernel_size, strict=True)
    ]
    return None if any(one % 2 for one in reach) else tuple(one // 2 for one in reach)


def _is_whole(steps: Tensor) -> bool:
    """Whether steps go into whole numbers of 32 bits; beside weights that are nearly nothing a bias
    is too many.
    """
    return bool((steps.abs() < WHOLE / 2).all())
