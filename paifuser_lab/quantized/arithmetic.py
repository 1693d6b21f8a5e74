"""How much arithmetic oneDNN's operators do, told to torch's counter, which knows ATen's alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula


def _convolution(qx: Any, scale: Any, zero: Any, qw: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * int(out_shape.numel()) * int(qw[1:].numel())


def _linear(qx: Any, scale: Any, zero: Any, qw: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * int(qx.numel()) * int(out_shape[-1])


for operator, formula in (
    (torch.ops.onednn.qconv2d_pointwise, _convolution),
    (torch.ops.onednn.qconv_pointwise, _convolution),
    (torch.ops.onednn.qlinear_pointwise, _linear),
):
    register_flop_formula(operator)(formula)
