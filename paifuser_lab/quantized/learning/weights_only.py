"""A layer that learns to have its weights alone in few bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..weights_only import WeightsOnly
from .layer import LearningLayer
from .straight import instead


class LearningWeights(LearningLayer):
    """Computes as the live layer does: with weights made from whole numbers, or, given few rows, with the whole numbers themselves."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        given = args[0] if args else next(iter(kwargs.values()))
        dtype = given.dtype if given.is_floating_point() else self.weight.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        made = self.product(given, self.rounded_weight().to(dtype), bias)
        if self.kind != "Linear" or self.scales.bits < 8:
            return made
        live = self.converted()
        assert isinstance(live, WeightsOnly)
        if not live.has_few_rows(given):
            return made
        with torch.no_grad():
            value = live(given.detach())
        return instead(made, value)
