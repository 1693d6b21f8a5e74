"""Linear layers and pointwise convolutions that multiply in fp8 (e4m3): weights scaled per channel,
inputs per row at run time.

Built on torch's product of scaled matrices, which is fast on a GPU from Ada (capability 8.9) on; a
CPU has it too, with the same numbers, but without a speed-up.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import StepError
from ...model.formats import FP8, Quantized, to_fp8
from ...model.layers import CONVOLUTIONS, is_transposed_linear
from .layer import QuantizedLayer, input_of

MIN_CAPABILITY = (8, 9)  # the lowest with a product in fp8
ROWWISE_CAPABILITY = (9, 0)  # the lowest whose product applies scales per row and channel
WIDTH_MULTIPLE = {"cuda": 16}  # both widths of a product must be multiples of it


def device_obstacle(device: torch.device) -> str | None:
    """Why a device has no product in fp8; None where it has one."""
    requirement = "fp8 needs a GPU of CUDA capability 8.9 or newer"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return (
            None
            if (major, minor) >= MIN_CAPABILITY
            else f"{requirement}, and this one has {major}.{minor}"
        )
    if device.type == "cpu":
        return (
            None
            if _cpu_has_product()
            else f"{requirement}, and this torch has no such product for a CPU"
        )
    return f"{requirement}, or a CPU, and the layer is on {device.type}"


@cache
def _cpu_has_product() -> bool:
    row, scale = torch.ones(1, 16).to(FP8), torch.ones(1, 1)
    try:
        torch._scaled_mm(row, row.t(), scale_a=scale, scale_b=scale, out_dtype=torch.float32)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def product_dtype(device: torch.device) -> torch.dtype | None:
    """The output dtype of the product that applies scales per row and channel; None where a device
    has no such product.
    """
    if device.type != "cuda":
        return torch.float32
    return (
        torch.bfloat16 if torch.cuda.get_device_capability(device) >= ROWWISE_CAPABILITY else None
    )


class Fp8Linear(QuantizedLayer):
    """Rounds its input to fp8 row by row, and multiplies in fp8."""

    def __init__(self, layer: Any) -> None:
        self.is_convolution = isinstance(layer, CONVOLUTIONS)
        self.is_transposed = is_transposed_linear(layer)
        weight = (
            layer.weight.detach().t() if self.is_transposed else layer.weight.detach().flatten(1)
        )
        numbers, scales = to_fp8(weight)
        super().__init__(layer, Quantized(numbers.view(torch.uint8).contiguous(), scales, 0), "fp8")
        self.shape = layer.weight.shape

    @property
    def weight(self) -> Tensor:
        """The dequantized weight, in the original layer's shape and layout."""
        numbers = self.values.view(FP8).float() * self.scales
        return numbers.t() if self.is_transposed else numbers.reshape(self.shape)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Raises on export: the runtimes have no such product."""
        if torch.compiler.is_exporting():
            raise StepError(
                "a layer in fp8 cannot be exported, since the engines have no product in fp8; use "
                "int8"
            )
        x: Tensor = input_of(args, kwargs)
        points = x.movedim(1 - self.is_single(x), -1) if self.is_convolution else x
        rows = points.reshape(-1, self.values.shape[1])
        output = self._multiply(rows).to(x.dtype).reshape(*points.shape[:-1], self.values.shape[0])
        return output.movedim(-1, 1 - self.is_single(x)) if self.is_convolution else output

    def is_single(self, x: Tensor) -> bool:
        """Whether a convolution's input is one example without a batch dimension."""
        return x.ndim == len(self.shape) - 1

    def _multiply(self, rows: Tensor) -> Tensor:
        rounded, scales = to_fp8(rows)
        weight, dtype = self.values.view(FP8), product_dtype(rows.device)
        if dtype is None:
            unit_scale = scales.new_ones(())
            output = (
                product(rounded, weight, unit_scale, unit_scale, torch.float32)
                * scales
                * self.scales.t()
            )
        else:
            output = product(rounded, weight, scales, self.scales.t(), dtype)
        return output if self.bias is None else output + self.bias


def product(
    left: Tensor, right: Tensor, left_scales: Tensor, right_scales: Tensor, dtype: torch.dtype
) -> Tensor:
    """Rows times rows (rows × inputs, outputs × inputs) in fp8, padded to supported widths."""
    outputs, inputs = right.shape
    width = WIDTH_MULTIPLE.get(left.device.type, 1)
    extra_outputs, extra_inputs = -outputs % width, -inputs % width
    if right_scales.ndim:
        right_scales = F.pad(right_scales, (0, extra_outputs), value=1.0).contiguous()
    left, right = _padded(left, extra_inputs, 0), _padded(right, extra_inputs, extra_outputs)
    return torch._scaled_mm(
        left, right.t(), scale_a=left_scales, scale_b=right_scales, out_dtype=dtype
    )[:, :outputs]


def _padded(values: Tensor, columns: int, rows: int) -> Tensor:
    return (
        F.pad(values.view(torch.uint8), (0, columns, 0, rows)).view(FP8)
        if columns or rows
        else values
    )
