"""How much arithmetic oneDNN's operators do, told to torch's counter, which knows ATen's alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from .layers.saturation import weights_of


def _convolution(
    qx: Any, scale: Any, zero: Any, qw: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    return 2 * int(out_val.numel()) * int(qw.shape[1:].numel()) // weights_of(qw)


def _linear(
    qx: Any, scale: Any, zero: Any, qw: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    return 2 * int(qx.numel()) * int(out_val.shape[-1]) // weights_of(qw)


for operator, formula in (
    (torch.ops.onednn.qconv2d_pointwise, _convolution),
    (torch.ops.onednn.qconv_pointwise, _convolution),
    (torch.ops.onednn.qlinear_pointwise, _linear),
):
    register_flop_formula(operator, get_raw=True)(formula)
