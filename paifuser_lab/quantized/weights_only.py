"""Layers that keep their weights in few bits and compute in the format of what they are given: smaller, seldom faster."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..formats import Quantized, format_of, quantize
from .layer import QuantizedLayer
from .nibbles import packed, unpacked
from .skeleton import with_weights, without_weights

FEW_ROWS = (
    16  # so many are multiplied by whole weights in bf16; for more, making the weights anew costs little beside the product
)
COLUMNS = 16  # torch's operator reads so many at once, past the end of rows that are no multiple of it


class WeightsOnly(QuantizedLayer):
    """Its weights are made from the whole numbers at each call."""

    def __init__(self, layer: nn.Module, channel: int, name: str, numbers: Quantized | None = None) -> None:
        bits = format_of(name).weight_bits
        super().__init__(layer, numbers or quantize(layer.weight, bits, channel=channel), name)  # type: ignore[arg-type]
        self.shape = self.values.shape
        self.in_nibbles = bits <= 4
        if self.in_nibbles:
            self.values = packed(self.values)
        self._skeleton = [without_weights(layer)]  # in a list, so that it is no part of this module

    @property
    def quantized_count(self) -> int:
        return self.shape.numel() + (0 if self.bias is None else self.bias.numel())

    @property
    def numbers(self) -> Quantized:
        """The whole numbers, one an element."""
        columns = self.shape[1:].numel()
        values = unpacked(self.values, columns).reshape(self.shape) if self.in_nibbles else self.values
        return Quantized(values, self.scales, self.channel)

    @property
    def weight(self) -> Tensor:
        """The numbers that the weight stands for."""
        return self.numbers.dequantized()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()))
        if self.kind == "Linear" and not torch.compiler.is_compiling() and self.has_few_rows(given):
            return self._few_rows(given)
        bias = None if self.bias is None else self.bias.to(given.dtype)
        return with_weights(self._skeleton[0], self._shown().to(given.dtype), bias)(*args, **kwargs)

    def _shown(self) -> Tensor:
        """The weight; a compiler or exporter is shown how it is made, so that it may keep the whole numbers."""
        if not torch.compiler.is_compiling() or self.in_nibbles or self.scales.shape[1] > 1:
            return self.weight
        scales, zeros = self.scales[:, 0], torch.zeros_like(self.scales[:, 0], dtype=torch.int64)
        made: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.values, scales, zeros, self.channel, -128, 127, torch.int8
        )
        return made

    def has_few_rows(self, given: Tensor) -> bool:
        """Whether a linear layer multiplies this by whole numbers in bf16, and not by the weights made from them."""
        rows, columns = given.numel() // max(given.shape[-1], 1), self.shape[1]
        is_plain = given.device.type == "cpu" and not self.in_nibbles and self.scales.shape[1] == 1
        return is_plain and rows <= FEW_ROWS and columns % COLUMNS == 0

    def _few_rows(self, given: Tensor) -> Tensor:
        """One pass over the whole numbers; with so few rows their bytes are the whole cost."""
        rows = given.reshape(-1, given.shape[-1]).to(torch.bfloat16)
        made = torch.ops.aten._weight_int8pack_mm(rows, self.values, self.scales[:, 0].to(torch.bfloat16)).to(given.dtype)
        made = made if self.bias is None else made + self.bias.to(given.dtype)
        answer: Tensor = made.reshape(*given.shape[:-1], -1)
        return answer


class EmbeddingWeightsOnly(WeightsOnly):
    """An embedding, of which only the rows that are asked for are made."""

    def forward(self, indices: Tensor) -> Tensor:
        rows = indices.reshape(-1)
        values = unpacked(self.values[rows], self.shape[1]) if self.in_nibbles else self.values[rows]
        made = Quantized(values, self.scales[rows], 0).dequantized()
        return made.reshape(*indices.shape, self.shape[1]).to(self.surrounding)
