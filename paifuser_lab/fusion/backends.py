"""The backends of fused layers by kind of device; each is a module with these three functions."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from . import cuda, mkl, onednn
from .activation import Bound


class Backend(Protocol):
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


BACKENDS: dict[str, tuple[Backend, ...]] = {"cpu": (onednn, mkl), "cuda": (cuda,)}


def backends_for(layer: Any, *, has_residual: bool, activation: str) -> dict[str, Backend]:
    """Every way that there is for a layer where it is, by name; the likeliest first."""
    known = BACKENDS.get(layer.weight.device.type, ())
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
