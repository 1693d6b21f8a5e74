"""Convolution and linear layers in int8 by oneDNN, with a relu or clamp that follows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn
from torch._prims_common import suggest_memory_format
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from ...model.formats import Quantized, Range, may_saturate, quantize
from ...model.layers import is_transposed_linear
from ..conversion import (
    conversions,
    dequantize_channels,
    dequantize_values,
    fake_quantize,
    quantize_values,
)
from . import on_gpu
from .layer import QuantizedLayer, input_of
from .tensor import Int8Tensor

INT32_LIMIT = 2**31  # 32-bit integers are below it
CONVOLVE = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
CONVOLVE_IMAGES = torch.ops.onednn.qconv2d_pointwise


@dataclass(frozen=True)
class Requantization:
    """How a layer passes its output on: the range if the next layer reads int8, and the clamp."""

    span: Range | None = None
    clamp: tuple[float, float | None] | None = None  # (0, None) is relu
    is_shared: bool = False  # other layers read it too, as rounded floats

    @property
    def post_operation(self) -> tuple[str, list[float]]:
        """The clamp as oneDNN's name and arguments."""
        if self.clamp is None:
            return "none", []
        low, high = self.clamp
        return (
            ("relu", [])
            if (low, high) == (0, None)
            else ("hardtanh", [low, float("inf") if high is None else high])
        )

    @property
    def quantized_clamp(self) -> tuple[int, int]:
        """The clamp on the quantized values."""
        low, high = (None, None) if self.clamp is None else self.clamp
        assert self.span is not None
        return (0 if low is None else self.span.step(low)), (
            255 if high is None else self.span.step(high)
        )


class Exported(NamedTuple):
    """How an exported file connects a layer, where sums are on integers there alone."""

    requantization: Requantization
    is_input_rounded: bool


class Int8Layer(QuantizedLayer):
    """Quantizes its input to 256 values, unless it already is, and multiplies integers."""

    def __init__(self, layer: nn.Module, weight: Quantized, span: Range) -> None:
        super().__init__(layer, weight, "int8")
        self.span = span
        self.requantization = Requantization()
        self.is_input_rounded = False  # to this layer's input range, by the module before
        self.exported: Exported | None = None  # in exported files, in place of these two

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """oneDNN computes; a compiler or an exporter sees the roundings, which it fuses itself."""
        x: Tensor = input_of(args, kwargs)
        if torch.compiler.is_compiling():
            return self._shared_output(self.product(*self._traceable(x))).to(x.dtype)
        quantized = self._quantized(x)
        next_span = self.requantization.span
        if next_span is None or not (
            quantized.device.type == "cpu" or on_gpu.can_requantize(self, quantized)
        ):
            return self._shared_output(self.multiply(quantized, 1.0, 0, x.dtype))
        return Int8Tensor(
            self.multiply(quantized, next_span.scale, next_span.zero, torch.uint8),
            next_span,
            x.dtype,
        )

    def _shared_output(self, output: Tensor) -> Tensor:
        """The float output, rounded where other layers read the rounded values too."""
        requantization, _ = self._connection()
        next_span, clamp = requantization.span, requantization.clamp
        if next_span is None or not requantization.is_shared:
            return output
        return fake_quantize(output if clamp is None else output.clamp(*clamp), next_span)

    def _connection(self) -> tuple[Requantization, bool]:
        """How it passes its output on, and whether its input is rounded already."""
        if self.exported is not None and torch.compiler.is_exporting():
            return self.exported
        return self.requantization, self.is_input_rounded

    def _quantized(self, x: Tensor) -> Tensor:
        if not isinstance(x, Int8Tensor):
            return quantize_values(x, self.span)
        if x.written is not None or x.span != self.span:
            return quantize_values(x.dequantized(), self.span)
        conversions["kept"] += 1
        return x.quantized

    def _traceable(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Input and weight through roundings that compilers and exporters recognise."""
        _, is_rounded = self._connection()
        rounded = x.float() if is_rounded else fake_quantize(x.float(), self.span)
        return rounded, dequantize_channels(self.values, self.scales[:, 0], 0)

    def _write_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which oneDNN writes an output; others are converted from fp32."""
        # oneDNN writes bf16 on every CPU, but without AVX-512 a hundred times slower
        if dtype == torch.bfloat16:
            return dtype if torch.backends.cpu.get_cpu_capability() == "AVX512" else torch.float32
        return dtype if dtype == torch.uint8 else torch.float32

    def _packed_weight(self, pack: Callable[[], Any]) -> tuple[Any, ...]:
        """The weight as oneDNN multiplies it, its scales and its zero points; () where its products
        would saturate here, since it was quantized for other processors.
        """
        if self._packed is None and may_saturate(self.values):
            self._packed = ()
        elif self._packed is None:
            zero_points = torch.zeros(len(self.values), dtype=torch.int64)  # it is symmetric
            self._packed = pack(), self.scales[:, 0].contiguous(), zero_points
        packed: tuple[Any, ...] = self._packed
        return packed

    def _in_floats(self, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        """The same output by float arithmetic on the integers."""
        rounded = dequantize_values(quantized, self.span, torch.float32)
        output = self.product(rounded, Quantized(self.values, self.scales, 0).dequantized())
        if self.requantization.clamp is not None:
            output = output.clamp(*self.requantization.clamp)
        if dtype != torch.uint8:
            return output.to(dtype)
        return (output / scale).round().add(zero).clamp(0, 255).to(torch.uint8)

    @abstractmethod
    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """The layer's arithmetic on floats."""

    @abstractmethod
    def multiply(self, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        """The layer's arithmetic on integers."""


class Int8Convolution(Int8Layer):
    """A convolution in one, two or three dimensions, with any groups."""

    def __init__(
        self, layer: Any, span: Range, numbers: Quantized | None = None, *, bits: int = 8
    ) -> None:
        super().__init__(layer, numbers or quantize(layer.weight, bits), span)
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
        self.is_channels_last = suggest_memory_format(layer.weight) is not torch.contiguous_format

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        convolve = CONVOLVE[weight.ndim]
        return convolve(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def multiply(self, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        is_single = quantized.ndim == self.values.ndim - 1
        batch = quantized.unsqueeze(0) if is_single else quantized
        output = self._convolved(batch, scale, zero, dtype)
        # oneDNN writes channels-last; the model may view its floats as it does those of its layer
        if dtype != torch.uint8 and not self.is_channels_last:
            output = output.contiguous()
        return output.squeeze(0) if is_single else output

    def _convolved(self, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        if on_gpu.takes(self, quantized):
            return on_gpu.multiply(self, quantized, scale, zero, dtype)
        geometry = list(self.stride), list(self.padding), list(self.dilation), self.groups
        packed = self._packed_weight(
            lambda: torch.ops.onednn.qconv_prepack(
                self.values,
                self.scales[:, 0],
                self.span.scale,
                self.span.zero,
                *geometry,
                list(quantized.shape),
            )
        )
        if not packed:
            return self._in_floats(quantized, scale, zero, dtype)
        # in one and three dimensions the operator does not fuse a clamp
        has_clamp = self.values.ndim == 4
        convolve = CONVOLVE_IMAGES if has_clamp else torch.ops.onednn.qconv_pointwise
        operation, scalars = self.requantization.post_operation if has_clamp else ("none", [])
        arguments = quantized, self.span.scale, self.span.zero, *packed, self.bias, *geometry
        output: Tensor = convolve(
            *arguments, scale, zero, self._write_dtype(dtype), operation, scalars, ""
        ).to(dtype)
        if not has_clamp and dtype == torch.uint8:
            output.clamp_(*self.requantization.quantized_clamp)
        return output


class Int8Linear(Int8Layer):
    """A linear layer, or GPT-2's transposed one."""

    def __init__(
        self, layer: Any, span: Range, numbers: Quantized | None = None, *, bits: int = 8
    ) -> None:
        self.is_transposed = is_transposed_linear(layer)
        super().__init__(
            layer,
            numbers or quantize(layer.weight.t() if self.is_transposed else layer.weight, bits),
            span,
        )
        self._is_bias_in_range = False  # set at the first call
        self.out_features: int = self.values.shape[0]
        self.in_features: int = self.values.shape[1]

    @property
    def weight(self) -> Tensor:
        """The dequantized weight, in the original layer's layout."""
        return super().weight.t() if self.is_transposed else super().weight

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight, self._traceable_bias())

    def _traceable_bias(self) -> Tensor | None:
        """ONNX Runtime multiplies integers only if the bias is integers of the products' scale."""
        if (
            self.bias is None
            or not torch.compiler.is_exporting()
            or self._packed is None
            or not self._is_bias_in_range
        ):
            return self.bias
        scales = self.scales[:, 0] * self.span.scale
        quantized = (self.bias / scales).round().to(torch.int32)
        return dequantize_channels(quantized, scales, 0, INT32_LIMIT)

    def multiply(self, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
        if on_gpu.takes(self, quantized):
            return on_gpu.multiply(self, quantized, scale, zero, dtype)
        rows = quantized.reshape(-1, self.in_features)
        if quantized.device.type != "cpu":  # there no layer passes int8 on
            output = on_gpu.int_mm_linear(
                rows, self.span, self.values, self.scales[:, 0], self.bias
            )
            return output.to(dtype).reshape(*quantized.shape[:-1], self.out_features)
        if self._packed is None:
            self._is_bias_in_range = self.bias is not None and _fits_int32(
                self.bias / (self.scales[:, 0] * self.span.scale)
            )
        packed = self._packed_weight(
            lambda: torch.ops.onednn.qlinear_prepack(self.values, list(rows.shape))
        )
        if not packed:
            return self._in_floats(quantized, scale, zero, dtype)
        arguments = rows, self.span.scale, self.span.zero, *packed, self.bias
        write_dtype = self._write_dtype(dtype)
        output = torch.ops.onednn.qlinear_pointwise(
            *arguments, scale, zero, write_dtype, *self.requantization.post_operation, ""
        ).to(dtype)
        reshaped: Tensor = output.reshape(*quantized.shape[:-1], self.out_features)
        return reshaped


def paddings(layer: Any) -> tuple[int, ...] | None:
    """A convolution's zero padding on both sides of each dimension; None for another padding."""
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
    return None if any(total % 2 for total in reach) else tuple(total // 2 for total in reach)


def _fits_int32(quantized: Tensor) -> bool:
    """Whether a quantized bias fits 32 bits; with nearly zero weights it does not."""
    return bool((quantized.abs() < INT32_LIMIT / 2).all())


# torch counts the FLOPs only of its own operators; these are oneDNN's
@register_flop_formula([CONVOLVE_IMAGES, torch.ops.onednn.qconv_pointwise], get_raw=True)
def _convolution_flops(
    qx: Any, scale: Any, zero: Any, qw: Any, *args: Any, out_val: Any, **kwargs: Any
) -> int:
    return 2 * int(out_val.numel()) * int(qw.shape[1:].numel())


@register_flop_formula(torch.ops.onednn.qlinear_pointwise, get_raw=True)
def _linear_flops(qx: Any, *args: Any, out_val: Any, **kwargs: Any) -> int:
    return 2 * int(qx.numel()) * int(out_val.shape[-1])
