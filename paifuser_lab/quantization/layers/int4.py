"""Linear layers in int4 by torch's packed operator: the integers are layer_operands as they are
stored, and no weight is made.

It is quick where a call has few rows, and then in bf16 alone: the layer's input, its scales
and its output are rounded to bf16, sums are in fp32. That adds about 3e-3 to the error, where
rounding weights to four bits makes about 1e-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...formats import GROUP, Quantized

OUTPUTS = 16  # the operator makes so many outputs at once; a layer with another number is filled up
ZERO = 8  # of the stored integers, which begin at 0


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the order that this processor's operator reads, which is another on another
    processor: made, never saved.
    """

    values: Tensor
    scales: Tensor  # (groups, outputs, 2): scale and offset
    inputs: int
    outputs: int


def grouped(numbers: Quantized, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """A linear weight as integers (outputs, groups, GROUP) from 0 to 15, and its scales (outputs,
    groups).

    Outputs are filled up with zeros to a multiple, inputs to whole groups; a row with one scale has
    it in each of its groups.
    """
    values = numbers.values.transpose(0, numbers.channel)
    outputs, inputs = values.shape
    groups, more = -(-inputs // GROUP), -outputs % multiple
    values = F.pad(values + ZERO, (0, groups * GROUP - inputs, 0, more), value=ZERO)
    scales = F.pad(numbers.scales.expand(outputs, groups), (0, 0, 0, more), value=1.0)
    return values.reshape(-1, groups, GROUP).to(torch.uint8), scales.contiguous()


def pack(numbers: Quantized) -> PackedWeight:
    """The weight of a linear layer for the operator."""
    outputs, inputs = numbers.values.transpose(0, numbers.channel).shape
    values, scales = grouped(numbers, OUTPUTS)
    ordered = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        values.flatten(1).to(torch.int32), 1
    )
    quantized = torch.stack([scales, torch.zeros_like(scales)], dim=-1).transpose(0, 1)
    return PackedWeight(ordered, quantized.to(torch.bfloat16).contiguous(), inputs, outputs)


def product(rows: Tensor, weight: PackedWeight) -> Tensor:
    """Rows times the weight, in the rows' dtype."""
    filled = F.pad(
        rows.to(torch.bfloat16), (0, len(weight.scales) * GROUP - weight.inputs)
    ).contiguous()
    output: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
        filled, weight.values, GROUP, weight.scales
    )
    return output[:, : weight.outputs].to(rows.dtype)


def onnx_weight(numbers: Quantized) -> tuple[Tensor, Tensor]:
    """The integers (outputs, groups, GROUP / 2), two a byte, and the scales (outputs, groups), as
    the operator reads them.

    Zero is 8 where a file says nothing of it, which is where it is stored.
    """
    values, scales = grouped(numbers)
    return values[..., ::2] | (values[..., 1::2] << 4), scales


def matmul_nbits(x: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """The operator in the traced graph; it takes any number of inputs, and the last group may be
    filled up. In fp32.
    """
    outputs, inputs = len(values), x.shape[-1]
    sizes: dict[str, Any] = {"K": inputs, "N": outputs, "bits": 4, "block_size": GROUP}
    operator, shape = "com.microsoft::MatMulNBits", (*x.shape[:-1], outputs)
    output: Tensor = torch.onnx.ops.symbolic(
        operator,
        (x.float(), values, scales),
        attrs=sizes,
        dtype=torch.float32,
        shape=shape,
        version=1,
    )
    return output.to(x.dtype)


def pack_nibbles(values: Tensor) -> Tensor:
    """Numbers from -8 to 7 in rows, as bytes; a row of odd length is filled up."""
    rows = values.reshape(values.shape[0], -1).add(8).to(torch.uint8)
    rows = F.pad(rows, (0, rows.shape[1] % 2))
    return rows[:, ::2] | (rows[:, 1::2] << 4)


def unpack_nibbles(nibbles: Tensor, columns: int) -> Tensor:
    """The numbers again, in rows of so many columns."""
    if torch.onnx.is_in_onnx_export():
        return _unpack_for_onnx(nibbles, columns)
    pairs = nibbles.to(
        torch.int16
    )  # a byte spread over two, so that no row is taken apart and put together
    return ((pairs | (pairs << 4)) & 0x0F0F).view(torch.int8)[..., :columns] - 8


def _unpack_for_onnx(nibbles: Tensor, columns: int) -> Tensor:
    """The same for a file: runtimes shift no bytes, and none reads one number as two."""
    whole = nibbles.to(torch.int32)
    both = torch.stack([whole & 15, whole >> 4], dim=-1).flatten(-2)
    return both[..., :columns].to(torch.int8) - 8
