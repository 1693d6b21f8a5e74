"""The blocks of keys that each block of queries attends to.

Lists are int32 of shape (batch, heads, blocks of queries, most), padded with -1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..kernels import choose_blocks
from ..kernels.block_choice import best_blocks, block_scores, blocks_under
from ..kernels.block_gather import BLOCK, blocks_of
from .masks import is_listed
from .sparsity import Sparsity


def listed(
    query: Tensor,
    key: Tensor,
    sparsity: Sparsity,
    fixed: Tensor | None,
    *,
    is_causal: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lists for one call."""
    count = sparsity.of(blocks_of(key.shape[2]))
    if sparsity.kind == "topk":
        return choose_blocks(
            query, key, keep=count, is_causal=is_causal, lengths=lengths, mask=mask
        )
    near = nearness(query, key, is_causal).masked_fill(
        ~seen_blocks(query, key, is_causal, lengths, mask), float("-inf")
    )
    if sparsity.kind == "window" or fixed is None:
        return best_blocks(near, count).expand(*query.shape[:2], -1, -1)
    return best_blocks(fitting(fixed, near), fixed.shape[-1]).expand(*query.shape[:2], -1, -1)


def nearness(query: Tensor, key: Tensor, is_causal: bool) -> Tensor:
    """(blocks of queries, blocks of keys), higher for nearer ones; of two at the same distance the
    earlier one is nearer.
    """
    rows, columns = (
        torch.arange(blocks_of(tokens.shape[2]), device=tokens.device) for tokens in (query, key)
    )
    # a causal query's position is its index
    own = rows if is_causal else rows * len(columns) // len(rows)
    return -(columns - own[:, None] + 0.25).abs()


def seen_blocks(
    query: Tensor, key: Tensor, is_causal: bool, lengths: Tensor | None, mask: Tensor | None
) -> Tensor:
    """(batch, heads, blocks of queries, blocks of keys), each of the first two or 1: whether a
    query of the one block sees a key of the other.
    """
    down, across = (
        torch.arange(blocks_of(tokens.shape[2]), device=tokens.device) for tokens in (query, key)
    )
    seen = (across <= down[:, None] if is_causal else torch.ones_like(across <= down[:, None]))[
        None, None
    ]
    if lengths is not None:
        seen = seen & (across * BLOCK < lengths.reshape(-1, 1, 1, 1))
    return seen if mask is None else seen & blocks_under(mask)[0]


def fitting(fixed: Tensor, near: Tensor) -> Tensor:
    """The nearness restricted to fixed lists, (heads, blocks of queries, most); unrestricted for
    queries that see none of the listed blocks.
    """
    kept = near.masked_fill(~is_listed(fixed[:, : near.shape[-2]], near.shape[-1]), float("-inf"))
    return torch.where(kept.isfinite().any(-1, keepdim=True), kept, near)


def fixed_lists(calls: Sequence[tuple[Tensor, Tensor]], count: int, *, is_causal: bool) -> Tensor:
    """The best blocks averaged over all examples of queries and keys; a block's own is always among
    them if there are as many queries as keys.
    """
    scores = torch.stack(
        [block_scores(query, key, is_causal=is_causal).mean(0) for query, key in calls]
    ).mean(0)
    if calls[0][0].shape[2] == calls[0][1].shape[2]:
        scores.diagonal(dim1=-2, dim2=-1).fill_(float("inf"))
    return best_blocks(scores, count)
