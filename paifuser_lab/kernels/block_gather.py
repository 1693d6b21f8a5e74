"""Attention to listed blocks of keys, composed of torch operators: gathers blocks, then attends.

It takes some blocks of queries at a time, so that the gathered keys stay in a cache of the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import functional as F

BLOCK = 64  # queries, and keys, of a block
# elements gathered at once, of keys and of values each: on a CPU what stays in a cache
_GATHERED_ON_CPU = 1 << 18
_GATHERED = 1 << 27  # elsewhere few launches matter more


def compose(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
    *,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The reference. It also takes a mask as torch's attention does: (batch, heads, queries, keys),
    each of them or 1.
    """
    # contiguous, so that a block is one run of memory to copy
    keys, values = (in_blocks(tokens).contiguous() for tokens in (key, value))
    batch, heads, blocks, _, size = keys.shape
    room = _GATHERED_ON_CPU if query.device.type == "cpu" else _GATHERED
    step = max(1, room // max(1, batch * heads * kept.shape[-1] * BLOCK * size))
    is_plain = lengths is None and not is_causal and mask is None and not key.shape[2] % BLOCK
    is_full = is_plain and _is_full(kept, blocks)
    ordered = kept if is_full else _in_order(kept)
    parts: list[Tensor] = []
    for queries, listed in zip(
        torch.split(query, step * BLOCK, 2), torch.split(ordered, step, 2), strict=True
    ):
        start = len(parts) * step * BLOCK
        if is_causal:  # blocks past the diagonal are not gathered
            listed = listed[..., : blocks_of(start + queries.shape[2])]
        seen = added = None
        if not is_full:
            seen, added = _visibility(start, listed, _limit(key, lengths), is_causal, mask)
        parts.append(_gather_and_attend(queries, keys, values, listed, seen, added, scale, dropout))
    return torch.cat(parts, dim=2)


def blocks_of(tokens: int) -> int:
    """The number of blocks that hold so many tokens."""
    return -(-tokens // BLOCK)


def in_blocks(tokens: Tensor) -> Tensor:
    """Tokens as (batch, heads, blocks, 64, head size), zeros after the last token."""
    missing = -tokens.shape[2] % BLOCK
    padded = F.pad(tokens, (0, 0, 0, missing)) if missing else tokens
    return padded.reshape(*tokens.shape[:2], -1, BLOCK, tokens.shape[3])


def _limit(key: Tensor, lengths: Tensor | None) -> Tensor:
    """The number of keys of each sample: (batch, 1, 1, 1)."""
    keys = torch.full((len(key),), key.shape[2], device=key.device)
    return (keys if lengths is None else keys.minimum(lengths)).reshape(-1, 1, 1, 1)


def _is_full(kept: Tensor, blocks: int) -> bool:
    """Whether every list has its full length, so that each query sees all that is listed; False
    where that cannot be checked without waiting for a device.
    """
    is_traced = (
        torch.compiler.is_compiling()
        or torch.compiler.is_exporting()
        or get_proxy_mode() is not None
        or torch._C._functorch.maybe_current_level() is not None
    )
    if is_traced or type(kept) is not Tensor or kept.device.type != "cpu" or not kept.numel():
        return False
    least, most = kept.aminmax()
    return bool(least >= 0) and bool(most < blocks)


def _in_order(kept: Tensor) -> Tensor:
    """The lists ascending, with -1 after the last listed block."""
    is_listed = (kept < 0).cumsum(-1) == 0
    last = torch.iinfo(kept.dtype).max
    ordered = kept.masked_fill(~is_listed, last).sort(-1).values
    return ordered.masked_fill(ordered == last, -1)


def _visibility(
    start: int, kept: Tensor, limit: Tensor, is_causal: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Which listed keys the queries of a block see, and what is added to their scores."""
    positions = kept.long()[..., None] * BLOCK + torch.arange(BLOCK, device=kept.device)
    visible = ((positions >= 0) & (positions < limit[..., None])).flatten(3)[..., None, :]
    if is_causal:
        own = start + torch.arange(kept.shape[2] * BLOCK, device=kept.device).reshape(-1, BLOCK, 1)
        visible = visible & (positions.flatten(3)[..., None, :] <= own)
    if mask is None:
        return visible, None
    listed = _listed_mask(mask, start, kept)
    return (visible & listed, None) if mask.dtype == torch.bool else (visible, listed)


def _listed_mask(mask: Tensor, start: int, kept: Tensor) -> Tensor:
    """The mask of the listed keys, for the blocks of queries from `start` on."""
    height = BLOCK if mask.shape[2] > 1 else 1
    rows = mask[:, :, start : start + kept.shape[2] * BLOCK] if height > 1 else mask
    padded = F.pad(rows, (0, -mask.shape[3] % BLOCK, 0, -rows.shape[2] % height))
    blocks = padded.reshape(*rows.shape[:2], -1, height, blocks_of(mask.shape[3]), BLOCK)
    index = kept.long().clamp(0, blocks.shape[4] - 1)[:, :, :, None, :, None]
    return torch.take_along_dim(blocks, index, dim=4).flatten(4)


def _gather_and_attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    kept: Tensor,
    visible: Tensor | None,
    added: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attention of some blocks of queries: each block becomes a head of torch's attention.

    A query that sees no key attends to all, and its output is replaced by zeros, so that gradients
    are finite.
    """
    batch, heads, tokens, size = query.shape
    blocks, most = kept.shape[2:]
    if not most:
        return torch.zeros_like(query)
    pair = torch.arange(batch * heads, device=kept.device)[:, None]
    places = kept.long().clamp(0, keys.shape[2] - 1).reshape(batch * heads, -1)
    index = (places + pair * keys.shape[2]).flatten()
    gathered = (
        blocked.reshape(-1, BLOCK * size).index_select(0, index) for blocked in (keys, values)
    )
    key, value = (rows.reshape(batch * heads, blocks, most * BLOCK, size) for rows in gathered)
    mask = is_blind = None
    if visible is not None:
        seen = visible.flatten(0, 1)
        is_blind = ~seen.any(-1, keepdim=True)
        mask = seen | is_blind
        if added is not None:
            bias = added.expand(batch, heads, *added.shape[2:]).flatten(0, 1)
            mask = bias.masked_fill(~mask, float("-inf"))
    grouped = in_blocks(query).flatten(0, 1)
    attended = F.scaled_dot_product_attention(
        grouped, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
    )
    attended = attended if is_blind is None else attended.masked_fill(is_blind, 0.0)
    return attended.reshape(batch, heads, blocks * BLOCK, size)[:, :, :tokens]
