"""Replace a layer of a model."""

from __future__ import annotations

from torch import nn


def replace_layer(root: nn.Module, layer: str, new: nn.Module) -> None:
    """Replace a layer by another module, which takes over its training mode."""
    parent, _, name = layer.rpartition(".")
    setattr(root.get_submodule(parent), name, new.train(root.get_submodule(layer).training))
