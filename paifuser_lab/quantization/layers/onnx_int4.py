"""Linear layers in int4 in an ONNX file: the operator MatMulNBits of ONNX Runtime, which OpenVINO
reads too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats import GROUP, Quantized
from .int4_linear import grouped


def stored(numbers: Quantized) -> tuple[Tensor, Tensor]:
    """The integers (outputs, groups, GROUP / 2), two a byte, and the scales (outputs, groups), as
    the operator reads them.

    Zero is 8 where a file says nothing of it, which is where it is stored.
    """
    values, scales = grouped(numbers)
    return values[..., ::2] | (values[..., 1::2] << 4), scales


def matmul_nbits(given: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """The operator in the traced graph; it takes any number of inputs, and the last group may be
    filled up. In fp32.
    """
    outputs, inputs = len(values), given.shape[-1]
    sizes: dict[str, Any] = {"K": inputs, "N": outputs, "bits": 4, "block_size": GROUP}
    operator, shape = "com.microsoft::MatMulNBits", (*given.shape[:-1], outputs)
    made: Tensor = torch.onnx.ops.symbolic(
        operator,
        (given.float(), values, scales),
        attrs=sizes,
        dtype=torch.float32,
        shape=shape,
        version=1,
    )
    return made.to(given.dtype)
