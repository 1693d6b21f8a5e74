"""Layers that are trained quantized: their weight is stored in fp32 and rounded at every call."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...model.formats import Quantized, integer_bits, with_scales
from ...model.layers import channel_of
from ..factory import quantized_layer
from ..layers.int8 import Int8Layer, Requantization
from ..layers.layer import QuantizedLayer, input_of, with_weights, without_weights
from ..layers.tensor import Int8Tensor
from ..layers.weights_only import WeightsOnly, are_few
from .straight_through import LearnedRange, LearnedScales, instead


class QatLayer(nn.Module):
    """A weight, its scales and its bias; `converted` is the quantized layer as of now."""

    def __init__(
        self, layer: Any, name: str, *, learns: bool, reduced_range: bool | None = None
    ) -> None:
        super().__init__()
        self.kind, self.format = type(layer).__name__, name
        self.weight = _copied(layer.weight)
        self.bias = None if getattr(layer, "bias", None) is None else _copied(layer.bias)
        channel = channel_of(layer)
        assert channel is not None
        # GPT-2's Conv1D, whose weight the int8 layer stores transposed
        self.is_transposed = name == "int8" and channel == 1
        self.scales = LearnedScales(
            self._rows(self.weight),
            integer_bits(name, reduced_range=reduced_range),
            0 if self.is_transposed else channel,
            learns=learns,
        )
        self._skeleton = [without_weights(layer)]  # in a list, so that it is not a submodule
        self.train(layer.training)

    def _rows(self, weight: Tensor) -> Tensor:
        return weight.t() if self.is_transposed else weight

    def rounded_weight(self) -> Tensor:
        """The weight after rounding, as floats."""
        return self._rows(self.scales(self._rows(self.weight)))

    def quantized_weight(self) -> Quantized:
        """The present integers of the weight, as the quantized layer stores them."""
        rows = self._rows(self.weight.detach())
        scales = self.scales.scales(rows).detach()
        return with_scales(rows, scales, self.scales.bits, channel=self.scales.channel)

    @torch.no_grad()
    def converted(self) -> QuantizedLayer:
        """The present quantized layer."""
        bare = with_weights(self._skeleton[0], self.weight, self.bias)
        return quantized_layer(bare, self.format, numbers=self.quantized_weight()).train(
            self.training
        )

    def product(self, x: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's arithmetic on floats."""
        output: Tensor = with_weights(self._skeleton[0], weight, bias)(x)
        return output

    def extra_repr(self) -> str:
        return f"{self.kind}, trained as {self.format}"


def _copied(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().float().clone(), requires_grad=weight.requires_grad)


class QatWeightsOnly(QatLayer):
    """Computes as the quantized layer does, with its integers or float weights made of them."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        x: Tensor = input_of(args, kwargs)
        dtype = x.dtype if x.is_floating_point() else self.weight.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        output = self.product(x, self.rounded_weight().to(dtype), bias)
        if not are_few(x):
            return output
        live = self.converted()
        assert isinstance(live, WeightsOnly)
        with torch.no_grad():
            value = live(x.detach()) if live.has_few_rows(x) else None
        return output if value is None else instead(output, value)


class Folding(NamedTuple):
    """The effect of a batch-norm with running statistics: a factor and a shift for each channel."""

    factor: Tensor
    shift: Tensor

    @classmethod
    def of(cls, norm: Any) -> Folding:
        """The present effect of a batch-norm; gradients flow to its weight and bias."""
        factor = torch.rsqrt(norm.running_var + norm.eps)
        factor = factor if norm.weight is None else factor * norm.weight
        shift = -norm.running_mean * factor
        return cls(factor, shift if norm.bias is None else shift + norm.bias)

    def weight(self, weight: Tensor) -> Tensor:
        """The layer's weight with the batch-norm folded in."""
        return weight * self.factor.reshape(-1, *[1] * (weight.ndim - 1))

    def bias(self, bias: Tensor | None) -> Tensor:
        """The layer's bias with the batch-norm folded in."""
        return self.shift if bias is None else bias * self.factor + self.shift

    def quantized_weight(self, numbers: Quantized) -> Quantized:
        """The layer's integers with the batch-norm folded into the scales, which stay positive."""
        signs = self.factor.sign().to(torch.int8).reshape(-1, *[1] * (numbers.values.ndim - 1))
        scales = numbers.scales * self.factor.abs().unsqueeze(1)
        return Quantized(
            numbers.values * signs,
            torch.where(scales > 0, scales, torch.ones_like(scales)),
            numbers.channel,
        )


class QatInt8(QatLayer):
    """Outputs exactly what the quantized layer computes; gradients are those of float arithmetic on
    the rounded numbers.

    In two cases the output is that of the float arithmetic: while a batch-norm that will be folded
    normalises by the batch, which no quantized layer does, and on other devices than the CPU.
    """

    def __init__(
        self,
        layer: Any,
        span: LearnedRange,
        *,
        norm: nn.Module | None = None,
        learns: bool,
        reduced_range: bool | None = None,
    ) -> None:
        super().__init__(layer, "int8", learns=learns, reduced_range=reduced_range)
        self.span, self.norm = span, norm
        self.clamp: tuple[float, float | None] | None = None
        # the readers' range where they read int8; in a list, since it is a submodule of theirs
        self._reader_range: list[LearnedRange] = []

    def requantize_to(self, requantization: Requantization, span: LearnedRange) -> None:
        """Pass the output on in int8, in the range that its readers learn."""
        self.clamp, self._reader_range = requantization.clamp, [span]

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        x: Tensor = input_of(args, kwargs)
        live = None if self._normalises_by_batch or x.device.type != "cpu" else self.converted()
        if live is not None and not torch.is_grad_enabled():
            return _dequantized(live(x))
        surrogate = self._surrogate(x).to(x.dtype)
        if live is None:
            return surrogate
        with torch.no_grad():
            value = _dequantized(live(x.detach()))
        return instead(surrogate, value)

    @property
    def _normalises_by_batch(self) -> bool:
        return self.norm is not None and self.norm.training

    def _surrogate(self, x: Tensor) -> Tensor:
        """The same in float arithmetic."""
        rounded, weight, bias = self.span(x), self.rounded_weight(), self.bias
        if self.norm is None:
            output = self.product(rounded, weight, bias)
        elif self._normalises_by_batch:
            output = self.norm(self.product(rounded, weight, bias))
        else:
            folding = Folding.of(self.norm)
            output = self.product(rounded, folding.weight(weight), folding.bias(bias))
        if self.clamp is not None:
            output = output.clamp(*self.clamp)
        return self._reader_range[0](output) if self._reader_range else output

    @torch.no_grad()
    def converted(self) -> Int8Layer:
        """The present int8 layer, with the batch-norm folded in."""
        numbers = self.quantized_weight()
        bias: Tensor | None = self.bias
        if self.norm is not None:
            folding = Folding.of(self.norm)
            numbers, bias = folding.quantized_weight(numbers), folding.bias(bias)
        output = quantized_layer(
            with_weights(self._skeleton[0], self.weight, bias), "int8", self.span.span, numbers
        )
        assert isinstance(output, Int8Layer)
        if self._reader_range:
            output.requantization = Requantization(self._reader_range[0].span, self.clamp)
        return output.train(self.training)


def _dequantized(output: Tensor) -> Tensor:
    return output.dequantized() if isinstance(output, Int8Tensor) else output
