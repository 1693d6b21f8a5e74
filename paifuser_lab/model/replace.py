"""Replace a layer of a model."""

from __future__ import annotations

from torch import nn


def replace_layer(root: nn.Module, layer: str, new: nn.Module) -> None:
    """Replace a layer, under each of its names, by a module that takes over its training mode."""
    old = root.get_submodule(layer)
    new.train(old.training)
    for parent in list(root.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)
