"""What does a layer and what follows it at once, on each kind of device. A new way is one more
module with these three functions.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from . import cuda, mkl, onednn
from .activation import Bound


class Way(Protocol):
    """A module that knows one."""

    def name_for(
        self, layer: Any, dtype: torch.dtype, *, has_residual: bool, activation: str
    ) -> str:
        """What it is called where it can do that; else ''."""

    def pack(self, layer: Any, weight: Tensor, x: Tensor) -> Any:
        """The weight as it wants it for inputs such as this one."""

    def bind(
        self,
        layer: Any,
        weight: Tensor,
        packed: Any,
        x: Tensor,
        activation: str,
        *,
        has_residual: bool,
    ) -> Bound:
        """activation(layer(x) + residual) as one call, for inputs such as this one."""


WAYS: dict[str, tuple[Way, ...]] = {"cpu": (onednn, mkl), "cuda": (cuda,)}


def ways_of(layer: Any, *, has_residual: bool, activation: str) -> dict[str, Way]:
    """Every way that there is for a layer where it is, by name; the likeliest first."""
    known = WAYS.get(layer.weight.device.type, ())
    named = (
        (
            one.name_for(
                layer, layer.weight.dtype, has_residual=has_residual, activation=activation
            ),
            one,
        )
        for one in known
    )
    return {name: one for name, one in named if name}
