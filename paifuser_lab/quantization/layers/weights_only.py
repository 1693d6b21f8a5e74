"""Layers that keep their weights in few bits and compute in the format of what they are given:
smaller, and with few rows faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ...formats import Quantized, format_of, quantize
from ...model.layers import is_linear
from . import int4_linear, onnx_int4
from .layer import QuantizedLayer
from .nibbles import packed, unpacked
from .skeleton import with_weights, without_weights

# So many rows are multiplied by integers in bf16; for more, making the weights anew costs little
# beside the product. The numbers are fixed, not timed on the spot, so that a model answers alike
# wherever it runs; `paifuser-lab bench int4` measures both ways.
FEW_ROWS = {4: 32, 8: 16}
# torch's operator for int8 reads so many at once, past the end of rows that are no multiple of it
COLUMNS = 16
ROUNDED = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
)  # fp64 is asked for by those who want its digits
ONNX_VALUES, ONNX_SCALES = "onnx_values", "onnx_scales"


class WeightsOnly(QuantizedLayer):
    """Its weights are made from the integers at each call, but for few rows, which a linear layer
    multiplies by the integers.
    """

    def __init__(
        self, layer: nn.Module, channel: int, name: str, numbers: Quantized | None = None
    ) -> None:
        bits = format_of(name).weight_bits
        super().__init__(layer, numbers or quantize(layer.weight, bits, channel=channel), name)  # type: ignore[arg-type]
        self.shape = self.values.shape
        self.in_nibbles = bits <= 4
        self.few_rows = FEW_ROWS[
            4 if self.in_nibbles else 8
        ]  # 0 where weights are always to be made
        self.is_linear = is_linear(layer)
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
        values = (
            unpacked(self.values, columns).reshape(self.shape) if self.in_nibbles else self.values
        )
        return Quantized(values, self.scales, self.channel)

    @property
    def weight(self) -> Tensor:
        """The numbers that the weight stands for."""
        return self.numbers.dequantized()

    @property
    def has_product(self) -> bool:
        """Whether there is an operator that multiplies few rows by its integers."""
        if self.in_nibbles:
            return self.is_linear
        return (
            self.is_linear
            and self.channel == 0
            and self.scales.shape[1] == 1
            and self.shape[1] % COLUMNS == 0
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()))
        if ONNX_VALUES in self._buffers and _is_traced() and torch.onnx.is_in_onnx_export():
            return self._with_bias(
                onnx_int4.matmul_nbits(
                    given, self.get_buffer(ONNX_VALUES), self.get_buffer(ONNX_SCALES)
                )
            )
        if not _is_traced() and self.has_few_rows(given):
            return self._few_rows(given)
        bias = None if self.bias is None else self.bias.to(given.dtype)
        return with_weights(self._skeleton[0], self._shown().to(given.dtype), bias)(*args, **kwargs)

    def _shown(self) -> Tensor:
        """The weight; a compiler or exporter is shown how it is made, so that it may keep the whole
        numbers.
        """
        if not torch.compiler.is_compiling() or self.in_nibbles or self.scales.shape[1] > 1:
            return self.weight
        scales, zeros = self.scales[:, 0], torch.zeros_like(self.scales[:, 0], dtype=torch.int64)
        made: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.values, scales, zeros, self.channel, -128, 127, torch.int8
        )
        return made

    def has_few_rows(self, given: Tensor) -> bool:
        """Whether a linear layer multiplies this by integers in bf16, and not by the weights made
        from them.
        """
        return self.has_product and are_few(given, self.few_rows) and not _is_differentiated(given)

    def _few_rows(self, given: Tensor) -> Tensor:
        """One pass over the integers; with so few rows their bytes are the whole cost."""
        rows = given.reshape(-1, given.shape[-1])
        made = self._times_nibbles(rows) if self.in_nibbles else self._times_bytes(rows)
        return self._with_bias(made.reshape(*given.shape[:-1], -1))

    def _times_nibbles(self, rows: Tensor) -> Tensor:
        if self._packed is None:
            self._packed = int4_linear.pack(self.numbers)
        return int4_linear.product(rows, self._packed)

    def _times_bytes(self, rows: Tensor) -> Tensor:
        scales = self.scales[:, 0].to(torch.bfloat16)
        made: Tensor = torch.ops.aten._weight_int8pack_mm(
            rows.to(torch.bfloat16), self.values, scales
        ).to(rows.dtype)
        return made

    def _with_bias(self, made: Tensor) -> Tensor:
        return made if self.bias is None else made + self.bias.to(made.dtype)


class EmbeddingWeightsOnly(WeightsOnly):
    """An embedding, of which only the rows that are asked for are made."""

    def forward(self, indices: Tensor) -> Tensor:
        rows = indices.reshape(-1)
        values = (
            unpacked(self.values[rows], self.shape[1]) if self.in_nibbles else self.values[rows]
        )
        made = Quantized(values, self.scales[rows], 0).dequantized()
        return made.reshape(*indices.shape, self.shape[1]).to(self.surrounding)


@contextmanager
def stored_for_onnx(model: nn.Module) -> Iterator[None]:
    """While a model is exported, its linear layers in int4 also hold their integers as an ONNX file
    does.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, WeightsOnly) and layer.in_nibbles and layer.is_linear
    ]
    try:
        for layer in layers:
            values, scales = onnx_int4.stored(layer.numbers)
            layer.register_buffer(ONNX_VALUES, values, persistent=False)
            layer.register_buffer(ONNX_SCALES, scales, persistent=False)
        yield
    finally:
        for layer in layers:
            for name in (ONNX_VALUES, ONNX_SCALES):
                layer._buffers.pop(name, None)
                layer._non_persistent_buffers_set.discard(name)


def are_few(given: Tensor, most: int = max(FEW_ROWS.values())) -> bool:
    """Whether these are so few rows that a processor multiplies them sooner by integers than it
    makes weights.
    """
    if given.device.type != "cpu" or given.dtype not in ROUNDED or not given.ndim:
        return False
    return 1 <= given.numel() // max(given.shape[-1], 1) <= most


def _is_traced() -> bool:
    """Whether a compiler or an exporter reads along in this thread."""
    return torch.compiler.is_compiling() or get_proxy_mode() is not None


def _is_differentiated(given: Tensor) -> bool:
    """Whether a derivative is wanted, which the operators on integers do not have."""
    is_forward = (
        forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None
    )
    return is_forward or (torch.is_grad_enabled() and given.requires_grad)
