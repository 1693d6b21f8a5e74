"""Which blocks of keys each block of queries attends to, scored by their means, on the device.

The score of two blocks is the product of the mean query of one and the mean key of the other:
accurate where neighbouring tokens are similar, as in images and text, and insensitive to a single
key that differs from its block. So the error depends on the data and has to be measured on it:
`errors_by_density`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .block_gather import BLOCK, blocks_of, in_blocks
from .block_sparse_attention import attend_to_blocks

DENSITIES = (1.0, 0.5, 0.25, 0.1)


def choose_blocks(
    query: Tensor,
    key: Tensor,
    *,
    keep: int | None = None,
    density: float | None = None,
    is_causal: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The best blocks of 64 keys for each block of 64 queries: `keep` of them, or the share
    `density` of all.

    Blocks that a causal query, the padding or a mask hides are never listed, so that lists may be
    shorter and end in -1. The diagonal block is always listed for causal attention, by `is_causal`
    or by a mask that shows its queries different keys of it. The output is (batch, heads, blocks of
    queries, keep) in int32, ascending.
    """
    count = blocks_of(key.shape[2])
    if (keep is None) == (density is None):
        raise KernelError("choose_blocks takes either `keep` or `density`; pass one of the two.")
    if density is not None and not 0 < density <= 1:
        raise KernelError(f"choose_blocks takes a density above 0 and up to 1, not {density}.")
    keep = max(1, round((density or 0.0) * count)) if keep is None else keep
    if keep < 1:
        raise KernelError(f"choose_blocks keeps at least one block, not {keep}.")
    return best_blocks(
        block_scores(query, key, is_causal=is_causal, lengths=lengths, mask=mask), keep
    )


def best_blocks(scores: Tensor, keep: int) -> Tensor:
    """The `keep` best blocks of each row, ascending; -1 at the end in place of hidden ones."""
    count = scores.shape[-1]
    best, index = scores.topk(min(keep, count), dim=-1)
    listed = index.masked_fill(best == float("-inf"), count).sort(-1).values
    return listed.masked_fill(listed == count, -1).int()


def errors_by_density(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    densities: Sequence[float] = DENSITIES,
    *,
    is_causal: bool = False,
) -> dict[float, float]:
    """The relative L2 error of attention to the chosen blocks, by density."""
    full = F.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), is_causal=is_causal
    )
    errors = {}
    for density in densities:
        blocks = choose_blocks(query, key, density=density, is_causal=is_causal)
        attended = attend_to_blocks(query, key, value, blocks, is_causal=is_causal)
        errors[density] = ((attended.float() - full).norm() / full.norm()).item()
    return errors


def block_scores(
    query: Tensor,
    key: Tensor,
    *,
    is_causal: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Scores of (…, blocks of queries, of keys) in fp32; -∞ where no query sees a key."""
    limit = None if lengths is None else lengths.reshape(-1, 1, 1, 1)
    scores = _means(query) @ _means(key, limit).transpose(-1, -2)
    down, across = (torch.arange(length, device=scores.device) for length in scores.shape[-2:])
    if limit is not None:
        scores = scores.masked_fill(across * BLOCK >= limit, float("-inf"))
    if is_causal:
        scores = scores.masked_fill(across > down[:, None], float("-inf"))
    is_own: bool | Tensor = is_causal
    if mask is not None:
        is_seen, is_mixed = blocks_under(mask)
        scores = scores.masked_fill(~is_seen, float("-inf"))
        is_own = is_mixed
    if is_causal or (mask is not None and query.shape[2] == key.shape[2]):
        scores = torch.where(
            (across == down[:, None]) & is_own & (scores > float("-inf")), float("inf"), scores
        )
    return scores


def blocks_under(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Under a mask, which blocks of keys each block of queries sees at all, and where its queries
    do not all see the same keys of a block.

    `mask` is as torch's attention takes it: (batch, heads, queries, keys), each of them or 1.
    """
    is_seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    height = BLOCK if mask.shape[-2] > 1 else 1
    missing = -mask.shape[-2] % height
    rows = [
        F.pad(is_seen, (0, -mask.shape[-1] % BLOCK, 0, missing), value=fill)
        for fill in (False, True)
    ]
    rows = [row.reshape(*row.shape[:2], -1, height, row.shape[-1]) for row in rows]
    by_any, by_all = rows[0].any(-2), rows[1].all(-2)
    is_seen, is_mixed = (
        keys.reshape(*keys.shape[:3], -1, BLOCK).any(-1) for keys in (by_any, by_any & ~by_all)
    )
    return is_seen, is_mixed


def _means(tokens: Tensor, limit: Tensor | None = None) -> Tensor:
    """The mean of each block's tokens in fp32, without padding."""
    if limit is None and not tokens.shape[2] % BLOCK:
        return in_blocks(tokens.float()).mean(3)
    index = torch.arange(tokens.shape[2], device=tokens.device).reshape(1, 1, -1, 1)
    is_token = index < (tokens.shape[2] if limit is None else limit)
    sums = in_blocks(tokens.float().masked_fill(~is_token, 0.0)).sum(3)
    return sums / in_blocks(is_token.float()).sum(3).clamp(min=1)
