"""What a mask of torch's attention hides: the same keys from every query, or different ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.block_gather import BLOCK


def as_whole(mask: Tensor | None, keys: int) -> Tensor | None:
    """A mask as (batch, heads, queries, keys), the first three each of them or 1; rows that are
    views of one row become that one.
    """
    if mask is None:
        return None
    whole = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    whole = whole[:, :, :1] if whole.stride(2) == 0 else whole
    return whole.expand(-1, -1, -1, keys) if whole.shape[-1] == 1 else whole


def visible_keys(mask: Tensor | None) -> Tensor | None:
    """(batch, keys), True for those that are there, where a mask says no more than that; else
    None.
    """
    is_padding = (
        mask is not None
        and mask.dtype.is_floating_point is False
        and mask.shape[1] == mask.shape[2] == 1
    )
    return mask[:, 0, 0].bool() if mask is not None and is_padding else None


def may_blind(mask: Tensor, kept: Tensor) -> bool:
    """Whether a query sees nothing in the blocks that are listed for it, though a mask shows it
    something elsewhere.

    Looked up on a CPU. Elsewhere, and while it is compiled, nothing is to wait for the output:
    queries may be blind there where they and the keys are not the same tokens, since no block of
    keys is then their own.
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
    """Of lists of blocks, (…, most), which of so many blocks are on them: (…, blocks)."""
    places = kept.long().masked_fill((kept < 0) | (kept >= blocks), blocks)
    results = torch.zeros(*kept.shape[:-1], blocks + 1, dtype=torch.bool, device=kept.device)
    return results.scatter(-1, places, True)[..., :blocks]
