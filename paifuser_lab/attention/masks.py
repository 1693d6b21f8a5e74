"""What a mask of torch's attention hides: the same keys from every query, or different ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.block_gather import BLOCK


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
