"""The tensors in what a model takes or returns, whatever its structure."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dictionaries and outputs of transformers, in order."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
