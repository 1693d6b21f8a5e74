"""A layer that learns to have its weights alone in few bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..layers.weights_only import WeightsOnly, are_few
from .layer import LearningLayer
from .straight_through import instead


class LearningWeights(LearningLayer):
    """Computes as the live layer does: with weights made from whole numbers, or, given few rows,
    with the whole numbers themselves.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        given = args[0] if args else next(iter(kwargs.values()))
        dtype = given.dtype if given.is_floating_point() else self.weight.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        made = self.product(given, self.rounded_weight().to(dtype), bias)
        if not are_few(given):
            return made
        live = self.converted()
        assert isinstance(live, WeightsOnly)
        with torch.no_grad():
            value = live(given.detach()) if live.has_few_rows(given) else None
        return made if value is None else instead(made, value)
