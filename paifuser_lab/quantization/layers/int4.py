"""Linear layers in int4 by torch's packed operator: the integers are multiplied as they are stored,
without building a float weight.

It is fast where a call has few rows, and only in bf16: the layer's input, its scales and its output
are rounded to bf16, sums are in fp32. That adds about 3e-3 to the error, where rounding weights to
four bits causes about 1e-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...model.formats import GROUP, Quantized

OUTPUTS = 16  # the operator computes this many outputs at once; other layers are padded
ZERO = 8  # the zero point of the stored integers, which start at 0


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the layout of this processor's operator: packed at run time, never saved."""

    values: Tensor
    scales: Tensor  # (groups, outputs, 2): scale and offset
    padding: int  # of a row, to whole groups
    outputs: int


def grouped(numbers: Quantized, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """A linear weight as integers (outputs, groups, GROUP) from 0 to 15, and its scales (outputs,
    groups).

    Outputs are padded with zeros to a multiple, inputs to whole groups; a row's single scale is
    repeated for each of its groups.
    """
    values = numbers.values.transpose(0, numbers.channel)
    outputs, inputs = values.shape
    groups, padding = -(-inputs // GROUP), -outputs % multiple
    values = F.pad(values + ZERO, (0, groups * GROUP - inputs, 0, padding), value=ZERO)
    scales = F.pad(numbers.scales.expand(outputs, groups), (0, 0, 0, padding), value=1.0)
    return values.reshape(-1, groups, GROUP).to(torch.uint8), scales.contiguous()


def pack(numbers: Quantized) -> PackedWeight:
    """Pack the weight of a linear layer for the operator."""
    outputs, inputs = numbers.values.transpose(0, numbers.channel).shape
    values, scales = grouped(numbers, OUTPUTS)
    ordered = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        values.flatten(1).to(torch.int32), 1
    )
    quantized = torch.stack([scales, torch.zeros_like(scales)], dim=-1).transpose(0, 1)
    return PackedWeight(
        ordered, quantized.to(torch.bfloat16).contiguous(), -inputs % GROUP, outputs
    )


def product(rows: Tensor, weight: PackedWeight) -> Tensor:
    """Rows in bf16 times the weight."""
    if weight.padding:
        rows = F.pad(rows, (0, weight.padding))
    output: Tensor = torch._weight_int4pack_mm_for_cpu(rows, weight.values, GROUP, weight.scales)
    return output if output.shape[1] == weight.outputs else output[:, : weight.outputs]


def onnx_weight(numbers: Quantized) -> tuple[Tensor, Tensor]:
    """The integers (outputs, groups, GROUP / 2), two per byte, and the scales (outputs, groups), as
    the ONNX operator reads them.

    The operator's default zero point is 8, as in the stored integers.
    """
    values, scales = grouped(numbers)
    return values[..., ::2] | (values[..., 1::2] << 4), scales


def matmul_nbits(x: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """The ONNX operator in the traced graph, in fp32; the last group of inputs may be padded."""
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
    """Integers from -8 to 7 in rows, packed two per byte; a row of odd length is padded."""
    rows = values.reshape(values.shape[0], -1).add(8).to(torch.uint8)
    rows = F.pad(rows, (0, rows.shape[1] % 2))
    return rows[:, ::2] | (rows[:, 1::2] << 4)


def unpack_nibbles(nibbles: Tensor, columns: int) -> Tensor:
    """Unpack the integers, in rows of this many columns."""
    if torch.onnx.is_in_onnx_export():
        return _unpack_for_onnx(nibbles, columns)
    # each byte is spread over two, so rows need not be split and concatenated
    pairs = nibbles.to(torch.int16)
    return ((pairs | (pairs << 4)) & 0x0F0F).view(torch.int8)[..., :columns] - 8


def _unpack_for_onnx(nibbles: Tensor, columns: int) -> Tensor:
    """The same for an ONNX file: runtimes neither shift bytes nor reinterpret one number as two."""
    integers = nibbles.to(torch.int32)
    halves = torch.stack([integers & 15, integers >> 4], dim=-1).flatten(-2)
    return halves[..., :columns].to(torch.int8) - 8
