"""A layer's geometry and its forward, apart from its weights, which are given at each call."""

from __future__ import annotations

from copy import copy

from torch import Tensor, nn


def without_weights(layer: nn.Module) -> nn.Module:
    """The layer with nothing in it."""
    bare = copy(layer)
    bare._parameters = dict.fromkeys(layer._parameters)
    return bare


def with_weights(bare: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The layer with these weights, which gradients may flow to."""
    made = copy(bare)
    made._parameters = {"weight": weight, "bias": bias}  # type: ignore[dict-item]
    return made
