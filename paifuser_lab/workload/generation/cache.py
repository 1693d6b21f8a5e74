"""A key-value cache in memory that is allocated once: a token writes its row, and attention reads
the rows up to it. transformers' static cache attends to all of its rows under a mask, and its
dynamic one copies all of them for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # keys and values, (batch, heads, tokens, size of a head)


def cache_over(pairs: Sequence[Pair], length: int) -> Any:
    """A cache of transformers over these keys and values, of which the first `length` are known."""
    from transformers.cache_utils import Cache

    return Cache(layers=[_layer_class()(keys, values, length) for keys, values in pairs])


def empty_pairs(model: Any, tokens: int) -> list[Pair]:
    """Keys and values of so many tokens for each layer, in the shapes that one token shows: pruned
    layers may have fewer heads than the config says.
    """
    device = next(model.parameters()).device
    with torch.no_grad():
        seen = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=True)
    return [
        (_widened(layer.keys, tokens), _widened(layer.values, tokens))
        for layer in seen.past_key_values.layers
    ]


def bytes_per_token(pairs: Sequence[Pair]) -> int:
    """What the cache of one more token takes."""
    return sum(part.nbytes // part.shape[2] for pair in pairs for part in pair)


def _widened(row: Tensor, tokens: int) -> Tensor:
    batch, heads, _, size = row.shape
    return row.new_zeros(batch, heads, tokens, size)


@cache
def _layer_class() -> Any:
    from transformers.cache_utils import CacheLayerMixin

    class PreallocatedLayer(CacheLayerMixin):  # type: ignore[misc]
        """The keys and values of one layer; `length` tokens are known."""

        is_sliding = False

        def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
            super().__init__()
            self.keys, self.values, self.length = keys, values, length
            self.is_initialized = True

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            """Nothing: the memory is there."""

        def update(
            self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
        ) -> tuple[Tensor, Tensor]:
            """Write the new rows, and return all that are known now."""
            start, self.length = self.length, self.length + key_states.shape[-2]
            known = (self.keys[:, :, : self.length], self.values[:, :, : self.length])
            known[0][:, :, start:] = key_states
            known[1][:, :, start:] = value_states
            return known

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            """The rows that a call of so many tokens attends to, and where they start."""
            return self.length + query_length, 0

        def get_seq_length(self) -> int:
            """The number of known tokens."""
            return self.length

        def get_max_length(self) -> int:
            """The number of tokens that there is memory for."""
            return self.keys.shape[2]

    return PreallocatedLayer
