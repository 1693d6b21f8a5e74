"""Swin's attention in one pass over the image: the same output, without reordering it before.

fused.py        the computation, on a CPU and in the CUDA kernel
biases.py       the sum of the biases of all pairs of tokens and the shift's mask, cached
zoo.py          the blocks of this project's Swin
transformers.py the layers of Swin in transformers
"""

from __future__ import annotations

from torch import nn

from ..subclassing import Subclassed, subclass_layer
from .biases import KeptBias
from .fused import FusedWindows
from .transformers import FusedLayer, is_swin_layer
from .zoo import FusedBlock, is_swin_block

__all__ = ["is_fused", "is_windowed", "make_fused"]


def is_windowed(layer: nn.Module) -> bool:
    """Whether a layer is a block of Swin that can attend, or already attends, in one pass."""
    return is_fused(layer) or _mixin_for(layer) is not None


def is_fused(layer: nn.Module) -> bool:
    """Whether a layer attends in one pass."""
    return isinstance(layer, FusedWindows)


def make_fused(model: nn.Module, layer: str) -> None:
    """Let a block of Swin attend in one pass."""
    block = model.get_submodule(layer)
    if (mixin := _mixin_for(block)) is not None:
        subclass_layer(block, mixin)
        block.kept_bias = KeptBias()  # type: ignore[assignment]


def _mixin_for(layer: nn.Module) -> type[Subclassed] | None:
    if is_swin_block(layer):
        return FusedBlock
    return FusedLayer if is_swin_layer(layer) else None
