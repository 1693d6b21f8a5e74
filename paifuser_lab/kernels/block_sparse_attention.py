"""Attention to the blocks of keys that matter: blocks are scored and listed on the device, the rest is neither read nor computed.

Fused: scaled products, causal and padding masks, softmax, the sum of values. Never in memory: scores, weights, masks. No block
mask is built and nothing waits for the host: `choosing.py` makes the lists of a few operators of torch.

Floor for 16 heads of 128 over 16,384 tokens in bf16: 4 × 67 MB, 63 µs on an H200 at 4.3 TB/s; 2.2 · 10¹² operations times the
density, 696 µs at a density of a quarter and 790 TFLOP/s, of which `mma.sync` reaches about half.

On a CPU, and where the kernel does not run, torch gathers the listed blocks and hands them to its own attention, some blocks of
queries at a time. On one CPU core, over 2,048 and 4,096 tokens, that took a sixth of the time of attention to all at a density
of a tenth, three quarters at a half and 1.5 times at all; where both are causal a third to a half at a tenth, as much at about
a quarter, and up to 2.7 times at all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import Budget, Kernel
from .launch import DeclinedError, Launch, aligned, countable, grid_of, one_of, type_of

BLOCK = 64  # queries, and keys, of a block
HEADS = (64, 128)  # numbers in a head
_THREADS = 128
_GATHERED = {"cpu": 1 << 18}  # numbers gathered at once, of keys and of values each: what stays in a cache
_GATHERED_ELSEWHERE = 1 << 27  # few launches matter more


def attend_to_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    *,
    lengths: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale · query · keyᵀ) · value over the blocks of 64 keys that `kept` lists for each block of 64 queries.

    Tensors are (batch, heads, tokens, numbers) as for torch's attention; `kept` is (batch, heads, blocks of queries, most) in
    int32, each block once, and the first negative number ends a list: `choose_blocks` makes it. `lengths`, (batch) in int32, is
    how many keys are there, the rest being padding. A causal query sees keys up to its own place; one that sees nothing gets 0.
    """
    scaled = query.shape[-1] ** -0.5 if scale is None else scale
    made: Tensor = torch.ops.paifuser.block_sparse_attention(query, key, value, kept, lengths, is_causal, scaled)
    return made


def compose(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor, lengths: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """The same, composed in torch."""
    keys, values = in_blocks(key), in_blocks(value)
    room = _GATHERED.get(query.device.type, _GATHERED_ELSEWHERE)
    at_once = max(1, room // max(1, keys.shape[0] * keys.shape[1] * kept.shape[-1] * BLOCK * keys.shape[-1]))
    parts: list[Tensor] = []
    ordered = _in_order(kept)
    for queries, listed in zip(torch.split(query, at_once * BLOCK, 2), torch.split(ordered, at_once, 2), strict=True):
        start = sum(part.shape[2] for part in parts)
        most = blocks_of(start + queries.shape[2]) if is_causal else kept.shape[-1]  # what is behind the diagonal is not gathered
        parts.append(_gathered(queries, start, keys, values, listed[..., :most], _limit(key, lengths), is_causal, scale))
    return torch.cat(parts, dim=2) if parts else torch.empty_like(query)


def empty(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor, lengths: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """Room for the answer, once the inputs are found to fit together."""
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape:
        raise KernelError(
            "block_sparse_attention takes queries, keys and values as (batch, heads, tokens, numbers), "
            f"not {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    batch, heads, queries, size = query.shape
    if (batch, heads, size) != (*key.shape[:2], key.shape[3]):
        raise KernelError(
            f"block_sparse_attention takes as many heads and numbers of keys as of queries, not {tuple(key.shape)} "
            f"for {tuple(query.shape)}; repeat the keys of shared heads."
        )
    if kept.dtype != torch.int32 or kept.dim() != 4 or tuple(kept.shape[:3]) != (batch, heads, blocks_of(queries)):
        raise KernelError(
            f"block_sparse_attention takes lists of blocks as {(batch, heads, blocks_of(queries))} × most in int32, "
            f"not {tuple(kept.shape)} in {kept.dtype}; `choose_blocks` makes them."
        )
    if lengths is not None and (lengths.dtype != torch.int32 or tuple(lengths.shape) != (batch,)):
        raise KernelError(
            f"block_sparse_attention takes lengths as ({batch},) in int32, not {tuple(lengths.shape)} in {lengths.dtype}."
        )
    return query.new_empty(query.shape)


def plan(
    out: Tensor, query: Tensor, key: Tensor, value: Tensor, kept: Tensor, lengths: Tensor | None, is_causal: bool, scale: float
) -> Launch:
    """A block for 64 queries of a head, a warp for 16 of them."""
    batch, heads, queries, size = query.shape
    kind = type_of(query, key, value)
    one_of("a head of", size, HEADS)
    if not scale > 0:
        raise DeclinedError(f"it takes a scale above 0, not {scale}")
    most = kept.shape[-1]
    return Launch(
        kernel="block_sparse_attention",
        entry=f"block_sparse_attention<{kind}, {size}>",
        grid=grid_of(blocks_of(queries), batch * heads, 1),
        block=(_THREADS, 1, 1),
        shared_bytes=5 * BLOCK * (size + 8) * 2,  # of `Sparse::Tile` in the source: queries, and two stages of keys and values
        arguments=(
            *(aligned(one.contiguous()) for one in (query, key, value)),
            kept.contiguous(),
            None if lengths is None else lengths.contiguous(),
            out,
            *(np.int32(countable(one)) for one in (queries, key.shape[2], heads, most, int(is_causal))),
            np.float32(scale),
        ),
    )


def blocks_of(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK)


def in_blocks(tokens: Tensor) -> Tensor:
    """(batch, heads, blocks, 64, numbers), zeros after the last token."""
    padded = F.pad(tokens, (0, 0, 0, -tokens.shape[2] % BLOCK))
    return padded.reshape(*tokens.shape[:2], -1, BLOCK, tokens.shape[3])


def _limit(key: Tensor, lengths: Tensor | None) -> Tensor:
    """Up to where there are keys, for each of the batch: (batch, 1, 1, 1)."""
    keys = torch.full((len(key),), key.shape[2], device=key.device)
    return (keys if lengths is None else keys.minimum(lengths)).reshape(-1, 1, 1, 1)


def _in_order(kept: Tensor) -> Tensor:
    """The same lists ascending, nothing but -1 behind what they list."""
    is_listed = (kept < 0).cumsum(-1) == 0
    last = torch.iinfo(kept.dtype).max
    ordered = kept.masked_fill(~is_listed, last).sort(-1).values
    return ordered.masked_fill(ordered == last, -1)


def _gathered(
    query: Tensor, start: int, keys: Tensor, values: Tensor, kept: Tensor, limit: Tensor, is_causal: bool, scale: float
) -> Tensor:
    """Attention of some blocks of queries, each to its own list: a block becomes a head of torch's attention."""
    batch, heads, tokens, size = query.shape
    blocks, most = kept.shape[2:]
    places = kept.long()[..., None] * BLOCK + torch.arange(BLOCK, device=kept.device)
    visible = ((places >= 0) & (places < limit[..., None])).flatten(3)[..., None, :]
    if is_causal:
        own = start + torch.arange(blocks * BLOCK, device=kept.device).reshape(blocks, BLOCK, 1)
        visible = visible & (places.flatten(3)[..., None, :] <= own)
    index = kept.long().clamp(0, keys.shape[2] - 1).reshape(batch * heads, blocks * most)
    pair = torch.arange(batch * heads, device=kept.device)[:, None]
    mine = F.pad(query, (0, 0, 0, -tokens % BLOCK)).reshape(batch * heads, blocks, BLOCK, size)
    near, far = (one.flatten(0, 1)[pair, index].reshape(batch * heads, blocks, most * BLOCK, size) for one in (keys, values))
    made = _attended(mine, near, far, visible.flatten(0, 1), scale)
    return made.reshape(batch, heads, blocks * BLOCK, size)[:, :, :tokens]


def _attended(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float) -> Tensor:
    """torch's attention; a query that sees nothing is shown everything and its answer replaced by zeros, so that gradients are numbers."""
    if not key.shape[2]:
        return torch.zeros_like(query)
    is_blind = ~visible.any(-1, keepdim=True)
    made = F.scaled_dot_product_attention(query, key, value, attn_mask=visible | is_blind, scale=scale)
    return made.masked_fill(is_blind, 0.0)


KERNEL = Kernel(
    name="block_sparse_attention",
    schema="(Tensor query, Tensor key, Tensor value, Tensor kept, Tensor? lengths, bool is_causal, float scale) -> Tensor",
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "block_sparse_attention<bfloat16, 64>": Budget(registers=128, instructions=1170),
        "block_sparse_attention<float16, 128>": Budget(registers=248, instructions=1660),
    },
)
