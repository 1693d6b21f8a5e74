"""A layer that is trained quantized: its weight is stored in fp32 and rounded at every call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...formats import Quantized, integer_bits, with_scales
from ...model.layers import channel_of
from ..factory import quantized_layer
from ..layers.layer import QuantizedLayer, with_weights, without_weights
from .learned_ranges import LearnedScales


class QatLayer(nn.Module):
    """Weight, bias and the weight's scales. `converted` is the quantized layer that would result if
    training ended now.
    """

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
