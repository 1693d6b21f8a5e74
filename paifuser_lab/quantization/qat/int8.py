"""A layer that is trained to compute in int8."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...formats import Quantized
from ..factory import quantized_layer
from ..layers.int8 import Int8Layer, Requantization
from ..layers.layer import with_weights
from ..layers.tensor import Int8Tensor
from .layer import QatLayer
from .learned_ranges import LearnedRange
from .straight_through import instead


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
        """The layer's integers with the batch-norm folded into their scales, which stay
        positive.
        """
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

    def forward(self, x: Tensor) -> Tensor:
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
