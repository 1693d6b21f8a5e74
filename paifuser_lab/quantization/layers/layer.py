"""The base class of layers with integer weights: their data, and how it is moved and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...model.formats import Quantized


class QuantizedLayer(nn.Module):
    """A layer of integer weights; its scales stay in fp32 whatever format is around it."""

    values: Tensor
    scales: Tensor
    bias: Tensor | None
    format: str

    def __init__(self, layer: nn.Module, weight: Quantized, name: str) -> None:
        super().__init__()
        self.kind = type(layer).__name__
        self.format = name
        self.channel = weight.channel
        self.register_buffer("values", weight.values)
        self.register_buffer("scales", weight.scales.float())
        bias = getattr(layer, "bias", None)
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        original: Any = layer
        self.surrounding: torch.dtype = original.weight.dtype  # of the model around it
        # the weight in the operator's own layout; packed at the first call
        self._packed: Any = None
        self.train(layer.training)

    @property
    def quantized_count(self) -> int:
        """The number of weights and biases, which are buffers in torch and parameters to users."""
        return self.values.numel() + (0 if self.bias is None else self.bias.numel())

    @property
    def weight(self) -> Tensor:
        """The dequantized weight."""
        return Quantized(self.values, self.scales, self.channel).dequantized()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device, but never change the format."""
        # what stays in fp32 itself does not tell the dtype around it
        around = torch.empty(0, dtype=self.surrounding, device=self.scales.device)
        self.surrounding = fn(around).dtype
        for name, buffer in self._buffers.items():
            if buffer is not None:
                moved = fn(buffer)
                self._buffers[name] = (
                    moved if moved.dtype == buffer.dtype else buffer.to(moved.device)
                )
        self._packed = None
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._packed = None  # packed from the old integers

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.format}"


def input_of(args: Any, kwargs: Any) -> Any:
    """The input of a call; torch names it `input`, GPT-2's linear layer `x`."""
    return args[0] if args else next(iter(kwargs.values()))


def tie(model: nn.Module, shared: Iterable[Sequence[str]]) -> None:
    """Let the layers of each group hold the integers and scales of its first."""
    for first, *others in shared:
        own = model.get_submodule(first)
        for layer in map(model.get_submodule, others):
            layer.values, layer.scales = own.values, own.scales


def without_weights(layer: nn.Module) -> nn.Module:
    """A copy of the layer without its weights."""
    bare = copy(layer)
    bare._parameters = dict.fromkeys(layer._parameters)
    return bare


def with_weights(bare: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The layer with these weights, through which gradients can flow."""
    output = copy(bare)
    output._parameters = {"weight": weight, "bias": bias}  # type: ignore[dict-item]
    return output
