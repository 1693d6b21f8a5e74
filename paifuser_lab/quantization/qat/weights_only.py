"""A layer that is trained with only its weights in lower precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..layers.weights_only import WeightsOnly, are_few
from .layer import QatLayer
from .straight_through import instead


class QatWeightsOnly(QatLayer):
    """Computes as the quantized layer does: with float weights built from integers or, for few
    rows, with the integers themselves.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        x = args[0] if args else next(iter(kwargs.values()))
        dtype = x.dtype if x.is_floating_point() else self.weight.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        output = self.product(x, self.rounded_weight().to(dtype), bias)
        if not are_few(x):
            return output
        live = self.converted()
        assert isinstance(live, WeightsOnly)
        with torch.no_grad():
            value = live(x.detach()) if live.has_few_rows(x) else None
        return output if value is None else instead(output, value)
