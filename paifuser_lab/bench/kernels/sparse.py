"""Peers of attention to chosen blocks: full attention, and FlexAttention with the same lists of
blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ...kernels import attend_to_blocks, choose_blocks
from ...kernels.block_gather import BLOCK, blocks_of

Inputs = tuple[Any, ...]


def attend_to_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Full attention."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale)


def choose_and_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Ours from queries and keys on: choose as many blocks as `kept` has, then attend."""
    chosen = choose_blocks(query, key, keep=kept.shape[-1], is_causal=is_causal)
    return attend_to_blocks(query, key, value, chosen, is_causal=is_causal, scale=scale)


def with_choice(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """FlexAttention from queries and keys on: blocks chosen as ours, and its own mask of them."""

    def run(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kept: Tensor,
        _: None,
        is_causal: bool,
        scale: float,
    ) -> Tensor:
        chosen = choose_blocks(query, key, keep=kept.shape[-1], is_causal=is_causal)
        return attend(query, key, value, mask_of(chosen, key, is_causal=is_causal), scale)

    return run


def attend_by_flex(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float
) -> Tensor:
    """FlexAttention over the blocks of a mask."""
    tiles: Any = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK}
    output = flex_attention(query, key, value, block_mask=mask, scale=scale, kernel_options=tiles)
    assert isinstance(output, Tensor)
    return output


def for_flex(inputs: Inputs) -> Inputs:
    """The operator's inputs, with the lists as FlexAttention's mask."""
    query, key, value, kept, _, is_causal, scale = inputs
    return query, key, value, mask_of(kept, key, is_causal=is_causal), scale


def mask_of(kept: Tensor, key: Tensor, *, is_causal: bool) -> BlockMask:
    """FlexAttention's mask of the same blocks: full ones by their list alone, those on the diagonal
    by their positions as well.
    """
    count = blocks_of(key.shape[2])
    own = torch.arange(kept.shape[2], device=kept.device, dtype=torch.int32)[:, None]
    is_full = (kept >= 0) & (kept != own) if is_causal else kept >= 0
    full = torch.where(is_full, kept, count).sort(-1).values
    full = F.pad(full.masked_fill(full == count, 0), (0, count - kept.shape[-1]))
    is_partial = ((kept == own) & is_causal).any(-1)
    partial = F.pad(own.expand(*kept.shape[:3], 1), (0, count - 1))
    return BlockMask.from_kv_blocks(
        is_partial.int(),
        partial.contiguous(),
        is_full.sum(-1, dtype=torch.int32),
        full.contiguous(),
        BLOCK_SIZE=BLOCK,
        mask_mod=_is_before if is_causal else None,
        seq_lengths=(kept.shape[2] * BLOCK, count * BLOCK),
        compute_q_blocks=False,
    )


def _is_before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
