"""A linear layer on torch's own product of int8 matrices, which is what a GPU has; the inputs'
steps are shifted to be signed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...formats import Range

LEAST_ROWS = 32  # a GPU's product wants more than 16 rows, and widths in eights
SHIFT = 128


def linear(
    steps: Tensor, span: Range, values: Tensor, scales: Tensor, bias: Tensor | None
) -> Tensor:
    """`steps` (rows × inputs, uint8) times whole-number weights (outputs × inputs), as numbers in
    fp32.
    """
    rows, outputs = steps.shape[0], values.shape[0]
    signed = (steps.to(torch.int16) - SHIFT).to(torch.int8)
    left = F.pad(signed, (0, -steps.shape[1] % 8, 0, max(0, LEAST_ROWS - rows)))
    right = F.pad(values, (0, -steps.shape[1] % 8, 0, -outputs % 8))
    products = torch._int_mm(left, right.t())[:rows, :outputs]
    centred = products - (span.zero - SHIFT) * values.sum(dim=1, dtype=torch.int32)
    made = centred.float() * (span.scale * scales)
    return made if bias is None else made + bias
