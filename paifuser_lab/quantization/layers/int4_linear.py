"""Linear layers in int4 by torch's packed operator: the integers are multiplied as they are stored,
and no weight is made.

It is quick where a call has few rows, and then in bf16 alone: what the layer is given, its scales
and its answer are rounded to bf16, sums are in fp32. That adds about 3e-3 to the error, where
rounding weights to four bits makes about 1e-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ...formats import GROUP, Quantized

OUTPUTS = 16  # the operator makes so many answers at once; a layer with another number is filled up
ZERO = 8  # of the stored integers, which begin at 0


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the order that this processor's operator reads, which is another on another
    processor: made, never saved.
    """

    values: Tensor
    scales: Tensor  # (groups, outputs, 2): the size of a step, and what is added
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
    steps = torch.stack([scales, torch.zeros_like(scales)], dim=-1).transpose(0, 1)
    return PackedWeight(ordered, steps.to(torch.bfloat16).contiguous(), inputs, outputs)


def product(rows: Tensor, weight: PackedWeight) -> Tensor:
    """Rows times the weight, in the rows' dtype."""
    filled = F.pad(
        rows.to(torch.bfloat16), (0, len(weight.scales) * GROUP - weight.inputs)
    ).contiguous()
    made: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
        filled, weight.values, GROUP, weight.scales
    )
    return made[:, : weight.outputs].to(rows.dtype)
