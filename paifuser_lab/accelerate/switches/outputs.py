"""What leaves a model's call beside arguments that it was given: its output, and what its layers
keep for the loop to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

OF_EVERY_LAYER = frozenset(vars(nn.Module()))  # weights, buffers, hooks
PLAIN = (Tensor, str, bytes, bool, int, float, complex, torch.dtype, torch.device, torch.Size)


def is_reachable(output: Any) -> bool:
    """Whether every tensor of an output is found, in lists, dicts and classes that torch knows."""
    return all(leaf is None or isinstance(leaf, PLAIN) for leaf in pytree.tree_leaves(output))


def kept_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors in attributes of layers that are no weight or buffer, as of an auxiliary loss,
    by the attribute's name.
    """
    for path, layer in model.named_modules():
        for name, value in vars(layer).items():
            if name in OF_EVERY_LAYER or not isinstance(value, Tensor | list | tuple | dict):
                continue
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, Tensor):
                    yield f"{path}.{name}".lstrip("."), leaf
