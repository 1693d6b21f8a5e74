"""Which blocks of keys each block of queries attends to.

Lists are (batch, heads, blocks of queries, most) in int32, -1 behind the last.
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
    """(blocks of queries, blocks of keys), higher the nearer they are; of two that are as near the
    earlier one is nearer.
    """
    rows, columns = (
        torch.arange(blocks_of(one.shape[2]), device=one.device) for one in (query, key)
    )
    own = (
        rows if is_causal else rows * len(columns) // len(rows)
    )  # a causal query's position is its index alone
    return -(columns - own[:, None] + 0.25).abs()


def seen_blocks(
    query: Tensor, key: Tensor, is_causal: bool, lengths: Tensor | None, mask: Tensor | None
) -> Tensor:
    """(batch, heads, blocks of queries, blocks of keys), each of the first two or 1: whether a
    query of one sees a key of the other.
    """
    down, across = (
        torch.arange(blocks_of(one.shape[2]), device=one.device) for one in (query, key)
    )
    seen = (across <= down[:, None] if is_causal else torch.ones_like(across <= down[:, None]))[
        None, None
    ]
    if lengths is not None:
        seen = seen & (across * BLOCK < lengths.reshape(-1, 1, 1, 1))
    return seen if mask is None else seen & blocks_under(mask)[0]


def fitting(fixed: Tensor, near: Tensor) -> Tensor:
    """What lists that were made once, (heads, blocks of queries, most), leave of the nearness of
    what is seen; all where that is nothing.
    """
    kept = near.masked_fill(~is_listed(fixed[:, : near.shape[-2]], near.shape[-1]), float("-inf"))
    return torch.where(kept.isfinite().any(-1, keepdim=True), kept, near)


def fixed_lists(calls: Sequence[tuple[Tensor, Tensor]], count: int, *, is_causal: bool) -> Tensor:
    """The best blocks over all examples of some queries and keys; a block's own is among them where
    queries and keys are as many.
    """
    scores = torch.stack(
        [block_scores(query, key, is_causal=is_causal).mean(0) for query, key in calls]
    ).mean(0)
    if calls[0][0].shape[2] == calls[0][1].shape[2]:
        scores.diagonal(dim1=-2, dim2=-1).fill_(float("inf"))
    return best_blocks(scores, count)
