"""The blocks of keys that each block of queries attends to: how many, the rule that selects them,
and what a mask hides of them.

Lists are int32 of shape (batch, heads, blocks of queries, most), padded with -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels import choose_blocks
from ..kernels.block_choice import best_blocks, block_scores, blocks_under
from ..kernels.block_gather import BLOCK, blocks_of
from ..records import AttentionKind


@dataclass(frozen=True)
class Sparsity:
    """The blocks that a layer attends to: the best at each call or on data, or the nearest."""

    kind: AttentionKind
    keep: float  # up to 1 a share of the blocks, from 2 on their number

    def of(self, blocks: int) -> int:
        """The number of blocks to select."""
        count = round(self.keep * blocks) if self.keep <= 1 else round(self.keep)
        return min(blocks, max(1, count))

    @property
    def label(self) -> str:
        """The label for chips and notes."""
        return (
            f"{self.keep:.0%} of the keys"
            if self.keep <= 1
            else f"{round(self.keep)} blocks of keys"
        )


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


def as_four_dimensions(mask: Tensor | None, keys: int) -> Tensor | None:
    """A mask as (batch, heads, queries, keys), each of the first three or 1; rows that are views of
    one row are reduced to it.
    """
    if mask is None:
        return None
    whole = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    whole = whole[:, :, :1] if whole.stride(2) == 0 else whole
    return whole.expand(-1, -1, -1, keys) if whole.shape[-1] == 1 else whole


def visible_keys(mask: Tensor | None) -> Tensor | None:
    """(batch, keys), True for visible keys, if a mask is only a padding mask; else None."""
    is_padding = (
        mask is not None
        and mask.dtype.is_floating_point is False
        and mask.shape[1] == mask.shape[2] == 1
    )
    return mask[:, 0, 0].bool() if mask is not None and is_padding else None


def may_hide_all_keys(mask: Tensor, kept: Tensor) -> bool:
    """Whether a query sees no key in the blocks that are listed for it, but would see one in
    another block.

    Computed on a CPU. On other devices, and under compilation, reading the values would wait for
    the output; there it is assumed if queries and keys are not the same tokens, since then no block
    of keys is the query's own.
    """
    queries, keys = mask.shape[2:]
    if queries == 1:
        return False
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return queries != keys
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    seen = F.pad(seen, (0, -keys % BLOCK)).reshape(*seen.shape[:3], -1, BLOCK).any(-1)
    shown = is_listed(kept, seen.shape[-1]).repeat_interleave(BLOCK, 2)[:, :, :queries]
    return bool((seen.any(-1) & ~(seen & shown).any(-1)).any())


def is_listed(kept: Tensor, blocks: int) -> Tensor:
    """Whether each of a number of blocks is in lists (…, most): (…, blocks)."""
    indices = kept.long().masked_fill((kept < 0) | (kept >= blocks), blocks)
    flags = torch.zeros(*kept.shape[:-1], blocks + 1, dtype=torch.bool, device=kept.device)
    return flags.scatter(-1, indices, True)[..., :blocks]
