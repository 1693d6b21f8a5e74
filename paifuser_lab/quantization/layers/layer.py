"""What every layer with integer weights has: the numbers, their scales, the bias; and how it
is moved, copied and asked.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...formats import Quantized


class QuantizedLayer(nn.Module):
    """A layer whose weight is integers. Its scales stay in fp32 whatever the model around it
    is converted to.
    """

    values: Tensor
    scales: Tensor
    bias: Tensor | None
    format: str
    outputs: int

    def __init__(self, layer: nn.Module, weight: Quantized, name: str) -> None:
        super().__init__()
        self.kind = type(layer).__name__
        self.format = name
        self.channel = weight.channel
        self.register_buffer("values", weight.values)
        self.register_buffer("scales", weight.scales.float())
        bias = getattr(layer, "bias", None)
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self.surrounding = torch.float32  # what the model around it computes in
        self._packed: Any = (
            None  # what the operator reads, in an order of its own; made at the first call
        )
        self.train(layer.training)

    @property
    def quantized_count(self) -> int:
        """How many weights there are, the bias with them; buffers to torch, parameters to
        people.
        """
        return self.values.numel() + (0 if self.bias is None else self.bias.numel())

    @property
    def weight(self) -> Tensor:
        """The numbers that the weight stands for."""
        return Quantized(self.values, self.scales, self.channel).dequantized()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to another device, never to another format."""
        for name, buffer in self._buffers.items():
            if buffer is not None:
                moved = fn(buffer)
                if moved.is_floating_point():
                    self.surrounding = moved.dtype
                self._buffers[name] = (
                    moved if moved.dtype == buffer.dtype else buffer.to(moved.device)
                )
        self._packed = None
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._packed = None  # what was made of the numbers before

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.format}"


def packed_zero_points(count: int) -> Tensor:
    """The operators ask for zero points of the weights, which are symmetric here."""
    return torch.zeros(count, dtype=torch.int64)


def without_weights(layer: nn.Module) -> nn.Module:
    """The layer with nothing in it."""
    bare = copy(layer)
    bare._parameters = dict.fromkeys(layer._parameters)
    return bare


def with_weights(bare: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The layer with these weights, which gradients may flow to."""
    output = copy(bare)
    output._parameters = {"weight": weight, "bias": bias}  # type: ignore[dict-item]
    return output
