"""The tensors in what a model takes or returns, whatever its structure, and their layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dictionaries and outputs of transformers, in order."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def is_channels_last(tensor: Tensor) -> bool:
    """Whether it is channels-last only: with one channel or one pixel both layouts are the same."""
    is_image = not tensor.is_nested and tensor.layout is torch.strided and tensor.ndim == 4
    return (
        is_image
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )
