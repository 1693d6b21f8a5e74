"""Linear layers, and convolutions of single points, that multiply in fp8 (e4m3): weights scaled by
channel, inputs row by row as they come.

Stands on torch's own product of scaled matrices, which is quick on a GPU from Ada (capability 8.9)
on; a CPU has it too, for the same numbers, not for speed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import StepError
from ...formats import FP8, Quantized, to_fp8
from ...model.layers import CONVOLUTIONS, is_transposed_linear
from .layer import QuantizedLayer

LEAST = (8, 9)  # the capability that has a product in fp8
BY_ROWS = (9, 0)  # that which scales rows and channels on the way
WIDTHS = {"cuda": 16}  # what both widths of a product have to be multiples of


def device_obstacle(device: torch.device) -> str | None:
    """Why a device has no product in fp8; None where it has."""
    wanted = "fp8 needs a GPU of CUDA capability 8.9 or newer"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return None if (major, minor) >= LEAST else f"{wanted}, and this one has {major}.{minor}"
    if device.type == "cpu":
        return (
            None
            if _cpu_has_product()
            else f"{wanted}, and this torch has no such product for a CPU"
        )
    return f"{wanted}, or a CPU, and the layer is on {device.type}"


@cache
def _cpu_has_product() -> bool:
    row, one = torch.ones(1, 16).to(FP8), torch.ones(1, 1)
    try:
        torch._scaled_mm(row, row.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def answers_in(device: torch.device) -> torch.dtype | None:
    """What a product outputs in that scales rows and channels on the way; None where a device has
    none.
    """
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= BY_ROWS else None


class Fp8Linear(QuantizedLayer):
    """Rounds its input to fp8 row by row, and multiplies that."""

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
        """The numbers that the weight stands for, in the shape and order in which the layer had
        them.
        """
        numbers = self.values.view(FP8).float() * self.scales
        return numbers.t() if self.is_transposed else numbers.reshape(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        """An exporter is refused: the runtimes that there are have no such product."""
        if torch.compiler.is_exporting():
            raise StepError(
                "a layer in fp8 cannot be exported, since the engines here have no product in fp8; "
                "take int8"
            )
        points = x.movedim(1 - self.is_single(x), -1) if self.is_convolution else x
        rows = points.reshape(-1, self.values.shape[1])
        output = self._multiply(rows).to(x.dtype).reshape(*points.shape[:-1], self.values.shape[0])
        return output.movedim(-1, 1 - self.is_single(x)) if self.is_convolution else output

    def is_single(self, x: Tensor) -> bool:
        """Whether a convolution is given one example without its batch."""
        return x.ndim == len(self.shape) - 1

    def _multiply(self, rows: Tensor) -> Tensor:
        small, scales = to_fp8(rows)
        weight, dtype = self.values.view(FP8), answers_in(rows.device)
        if dtype is None:
            one = scales.new_ones(())
            output = product(small, weight, one, one, torch.float32) * scales * self.scales.t()
        else:
            output = product(small, weight, scales, self.scales.t(), dtype)
        return output if self.bias is None else output + self.bias


def product(
    left: Tensor, right: Tensor, left_scales: Tensor, right_scales: Tensor, dtype: torch.dtype
) -> Tensor:
    """Rows times rows (rows × inputs, outputs × inputs), both in fp8, filled up to the widths that
    there are products for.
    """
    outputs, inputs = right.shape
    width = WIDTHS.get(left.device.type, 1)
    more, columns = -outputs % width, -inputs % width
    if right_scales.ndim:
        right_scales = F.pad(right_scales, (0, more), value=1.0).contiguous()
    left, right = _filled(left, columns, 0), _filled(right, columns, more)
    return torch._scaled_mm(
        left, right.t(), scale_a=left_scales, scale_b=right_scales, out_dtype=dtype
    )[:, :outputs]


def _filled(values: Tensor, columns: int, rows: int) -> Tensor:
    return (
        F.pad(values.view(torch.uint8), (0, columns, 0, rows)).view(FP8)
        if columns or rows
        else values
    )
