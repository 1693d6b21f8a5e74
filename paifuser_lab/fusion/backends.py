"""The backends of fused layers by kind of device; each is a module that satisfies `Backend`."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from . import cuda, mkl, onednn
from .activation import Bound


class Backend(Protocol):
    """What a backend's module defines."""

    def name_for(
        self, layer: Any, dtype: torch.dtype, *, has_residual: bool, activation: str
    ) -> str:
        """The backend's name if it supports this layer, dtype, residual and activation, else ''."""

    def pack(self, layer: Any, weight: Tensor, x: Tensor) -> Any:
        """The weight in the layout that suits inputs such as x."""

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
        """activation(layer(x) + residual) as one call, for inputs such as x."""


BACKENDS: dict[str, tuple[Backend, ...]] = {"cpu": (onednn, mkl), "cuda": (cuda,)}


def backends_for(layer: Any, *, has_residual: bool, activation: str) -> dict[str, Backend]:
    """The backends that support a layer on its device, by name; the one likely fastest first."""
    dtype = layer.weight.dtype
    return {
        name: backend
        for backend in BACKENDS.get(layer.weight.device.type, ())
        if (
            name := backend.name_for(layer, dtype, has_residual=has_residual, activation=activation)
        )
    }
