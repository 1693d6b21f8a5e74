"""Layers that store rounded weights and compute in floats: smaller, faster for few rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ...model.formats import Quantized, format_of, quantize
from ...model.layers import is_linear
from ..conversion import dequantize_channels
from . import int4
from .layer import QuantizedLayer, input_of, with_weights, without_weights

# Up to this many rows are multiplied by integers in bf16; for more, building the float weights is
# cheap beside the product. The limits are fixed, not timed at run time, so that a model's outputs
# do not depend on the machine; `python -m benchmarks int4` measures both.
FEW_ROWS = {4: 32, 8: 16}
# torch's int8 operator reads this many at once, past the end of rows that are not a multiple of it
COLUMNS = 16
# not fp64, whose users need its precision
ROUNDED = (torch.float32, torch.bfloat16, torch.float16)
ONNX_VALUES, ONNX_SCALES = "onnx_values", "onnx_scales"


class WeightsOnly(QuantizedLayer):
    """Builds its float weight at each call; a linear layer multiplies few rows by integers."""

    def __init__(
        self, layer: nn.Module, channel: int, name: str, numbers: Quantized | None = None
    ) -> None:
        bits = format_of(name).weight_bits
        super().__init__(layer, numbers or quantize(layer.weight, bits, channel=channel), name)  # type: ignore[arg-type]
        self.shape = self.values.shape
        self.in_nibbles = bits <= 4
        # 0: always build the float weight
        self.few_rows = FEW_ROWS[4 if self.in_nibbles else 8]
        self.is_linear = is_linear(layer)
        # whether there is an operator that multiplies few rows by its integers
        self.has_product = self.is_linear and (
            self.in_nibbles
            or (self.channel == 0 and self.scales.shape[1] == 1 and self.shape[1] % COLUMNS == 0)
        )
        if self.in_nibbles:
            self.values = int4.pack_nibbles(self.values)
        self._skeleton = [without_weights(layer)]  # in a list, so that it is not a submodule

    @property
    def quantized_count(self) -> int:
        return self.shape.numel() + (0 if self.bias is None else self.bias.numel())

    @property
    def numbers(self) -> Quantized:
        """The integers, one per element."""
        columns = self.shape[1:].numel()
        values = (
            int4.unpack_nibbles(self.values, columns).reshape(self.shape)
            if self.in_nibbles
            else self.values
        )
        return Quantized(values, self.scales, self.channel)

    @property
    def weight(self) -> Tensor:
        """The dequantized weight."""
        return self.numbers.dequantized()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        x: Tensor = input_of(args, kwargs)
        if ONNX_VALUES in self._buffers and _is_traced() and torch.onnx.is_in_onnx_export():
            return self._with_bias(
                int4.matmul_nbits(x, self.get_buffer(ONNX_VALUES), self.get_buffer(ONNX_SCALES))
            )
        if not _is_traced() and self.has_few_rows(x):
            return self._few_rows(x)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return with_weights(self._skeleton[0], self._traceable_weight().to(x.dtype), bias)(
            *args, **kwargs
        )

    def _traceable_weight(self) -> Tensor:
        """The weight, whose dequantization a compiler or exporter sees, to keep the integers."""
        if not torch.compiler.is_compiling() or self.in_nibbles or self.scales.shape[1] > 1:
            return self.weight
        return dequantize_channels(self.values, self.scales[:, 0], self.channel)

    def has_few_rows(self, x: Tensor) -> bool:
        """Whether a linear layer multiplies this input by integers in bf16."""
        return self.has_product and are_few(x, self.few_rows) and not _is_differentiated(x)

    def _few_rows(self, x: Tensor) -> Tensor:
        """One pass over the integers; with so few rows their bytes are most of the cost, and for
        small layers the Python around it: nothing is looked up that can be packed once.
        """
        if self._packed is None:
            self._packed = (
                int4.pack(self.numbers) if self.in_nibbles else self.scales[:, 0].to(torch.bfloat16)
            )
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16).contiguous()
        output = (
            int4.product(rows, self._packed)
            if self.in_nibbles
            else torch._weight_int8pack_mm(rows, self.values, self._packed)
        )
        return self._with_bias(output.to(x.dtype).reshape(*x.shape[:-1], -1))

    def _with_bias(self, output: Tensor) -> Tensor:
        bias = self._buffers["bias"]
        return output if bias is None else output + bias.to(output.dtype)


class EmbeddingWeightsOnly(WeightsOnly):
    """An embedding that dequantizes only the rows it looks up."""

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1)
        values = (
            int4.unpack_nibbles(self.values[rows], self.shape[1])
            if self.in_nibbles
            else self.values[rows]
        )
        output = Quantized(values, self.scales[rows], 0).dequantized()
        return output.reshape(*input.shape, self.shape[1]).to(self.surrounding)


@contextmanager
def stored_for_onnx(model: nn.Module) -> Iterator[None]:
    """During export, let linear layers in int4 also hold integers as an ONNX file has them."""
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, WeightsOnly) and layer.in_nibbles and layer.is_linear
    ]
    try:
        for layer in layers:
            values, scales = int4.onnx_weight(layer.numbers)
            layer.register_buffer(ONNX_VALUES, values, persistent=False)
            layer.register_buffer(ONNX_SCALES, scales, persistent=False)
        yield
    finally:
        for layer in layers:
            for name in (ONNX_VALUES, ONNX_SCALES):
                layer._buffers.pop(name, None)
                layer._non_persistent_buffers_set.discard(name)


def are_few(x: Tensor, limit: int = max(FEW_ROWS.values())) -> bool:
    """Whether a processor multiplies so few rows faster by integers than it builds weights."""
    if not x.is_cpu or x.dtype not in ROUNDED or not x.ndim:
        return False
    return 1 <= x.numel() // max(x.shape[-1], 1) <= limit


def _is_traced() -> bool:
    """Whether a compiler or an exporter traces this thread."""
    return torch.compiler.is_compiling() or get_proxy_mode() is not None


def _is_differentiated(x: Tensor) -> bool:
    """Whether a derivative is needed, which the operators on integers do not have."""
    is_forward = (
        forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None
    )
    return is_forward or (torch.is_grad_enabled() and x.requires_grad)
