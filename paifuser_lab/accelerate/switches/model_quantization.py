"""Train with weights as int8 will hold them, so that `lab.quantize_model` costs little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...model.formats import rounded
from ...model.layers import channel_of
from .base import Call, Parts, Switch

FORMAT = "int8-weights"


class ModelQuantization(Switch):
    """Weights of linear and convolution layers rounded to int8, with straight-through gradients."""

    name = feature = "model_quantization"
    is_exact = False
    is_judged = False

    def obstacle(self, parts: Parts) -> str:
        if not any(_rounded_weights(model) for model in parts.models):
            return "no layer has a weight to round"
        return "a compiled model keeps its own weights" if parts.is_compiled else ""

    def wrap(self, model: nn.Module, call: Call) -> Call:
        def with_rounded_weights(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            weights = {
                name: weight + (rounded(weight, FORMAT, channel=channel) - weight).detach()
                for name, (weight, channel) in _rounded_weights(model).items()
            }
            return torch.func.functional_call(model, weights, args, kwargs)

        return with_rounded_weights

    def why(self) -> str:
        return "weights are trained as int8 holds them; then call lab.quantize_model(model)"


def _rounded_weights(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    return {
        f"{path}.weight" if path else "weight": (layer.weight, channel)
        for path, layer in model.named_modules()
        if not isinstance(layer, nn.Embedding)
        and (channel := channel_of(layer)) is not None
        and isinstance(layer.weight, nn.Parameter)
    }
