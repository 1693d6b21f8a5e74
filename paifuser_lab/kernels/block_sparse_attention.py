"""Attention to the blocks of keys that matter: blocks are scored and listed on the device, the rest
is neither read nor computed.

Fused: scaled products, causal and padding masks, softmax, the sum of values. Never in memory:
scores, weights, masks. No block mask is built and nothing waits for the host: `choosing.py` makes
the lists of a few operators of torch.

Floor for 16 heads of 128 over 16,384 tokens in bf16: 4 × 67 MB, 63 µs on an H200 at 4.3 TB/s; 2.2 ·
10¹² operations times the density, 696 µs at a density of a quarter and 790 TFLOP/s, of which
`mma.sync` reaches about half.

On a CPU, and where the kernel does not run, torch gathers the listed blocks and hands them to its
own attention, some blocks of queries at a time. On a Xeon with AVX-512, one core or two, six heads
of 64 over 1,024 to 4,096 tokens, that and the choice took a fifth to a third of the time of
attention to all at a density of a tenth, half of it at a quarter, 0.9 to 1.2 times as long at a
half and 2 to 3.3 times at all; where both are causal 0.6 to 0.8 times as long at a tenth and more
than all from a quarter on.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import Budget, Kernel
from .launch import TYPES, DeclinedError, Launch, aligned, countable, grid_of, one_of, type_of
from .tile_choice import choose_tile, describe_problem, rounded_size
from .tiles import RESERVED_BYTES, SHARED_BYTES, Tile, Tiles

BLOCK = 64  # queries, and keys, of a block
HEADS = (64, 128)  # numbers in a head
_GATHERED = {
    "cpu": 1 << 18
}  # numbers gathered at once, of keys and of values each: what stays in a cache
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
    """softmax(scale · query · keyᵀ) · value over the blocks of 64 keys that `kept` lists for each
    block of 64 queries.

    Tensors are (batch, heads, tokens, numbers) as for torch's attention; `kept` is (batch, heads,
    blocks of queries, most) in int32, each block once, and the first negative number ends a list:
    `choose_blocks` makes it. `lengths`, (batch) in int32, is how many keys are there, the rest
    being padding. A causal query sees keys up to its own place; one that sees nothing gets 0.
    """
    scaled = query.shape[-1] ** -0.5 if scale is None else scale
    made: Tensor = torch.ops.paifuser.block_sparse_attention(
        query, key, value, kept, lengths, is_causal, scaled
    )
    return made


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
    """The same, composed in torch; here a mask as torch's attention takes it, (batch, heads,
    queries, keys), each of them or 1, too.
    """
    keys, values = (
        in_blocks(one).contiguous() for one in (key, value)
    )  # a block is then one run of memory to copy
    room = _GATHERED.get(query.device.type, _GATHERED_ELSEWHERE)
    at_once = max(
        1, room // max(1, keys.shape[0] * keys.shape[1] * kept.shape[-1] * BLOCK * keys.shape[-1])
    )
    parts: list[Tensor] = []
    is_whole = (
        lengths is None
        and not is_causal
        and mask is None
        and not key.shape[2] % BLOCK
        and _is_full(kept, keys.shape[2])
    )
    ordered = kept if is_whole else _in_order(kept)
    for queries, listed in zip(
        torch.split(query, at_once * BLOCK, 2), torch.split(ordered, at_once, 2), strict=True
    ):
        start = sum(part.shape[2] for part in parts)
        most = (
            blocks_of(start + queries.shape[2]) if is_causal else kept.shape[-1]
        )  # what is behind the diagonal is not gathered
        visible, added = (
            (None, None)
            if is_whole
            else _seen(start, listed[..., :most], _limit(key, lengths), is_causal, mask)
        )
        parts.append(
            _gathered(queries, keys, values, listed[..., :most], visible, added, scale, dropout)
        )
    return torch.cat(parts, dim=2) if parts else torch.empty_like(query)


def empty(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Room for the answer, once the inputs are found to fit together."""
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape:
        raise KernelError(
            "block_sparse_attention takes queries, keys and values as (batch, heads, tokens, "
            "numbers), "
            f"not {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    batch, heads, queries, size = query.shape
    if (batch, heads, size) != (*key.shape[:2], key.shape[3]):
        raise KernelError(
            "block_sparse_attention takes as many heads and numbers of keys as of queries, not "
            f"{tuple(key.shape)} "
            f"for {tuple(query.shape)}; repeat the keys of shared heads."
        )
    if (
        kept.dtype != torch.int32
        or kept.dim() != 4
        or tuple(kept.shape[:3]) != (batch, heads, blocks_of(queries))
    ):
        raise KernelError(
            f"block_sparse_attention takes lists of blocks as {(batch, heads, blocks_of(queries))} "
            "× most in int32, "
            f"not {tuple(kept.shape)} in {kept.dtype}; `choose_blocks` makes them."
        )
    if lengths is not None and (lengths.dtype != torch.int32 or tuple(lengths.shape) != (batch,)):
        raise KernelError(
            f"block_sparse_attention takes lengths as ({batch},) in int32, not "
            f"{tuple(lengths.shape)} in {lengths.dtype}."
        )
    return query.new_empty(query.shape)


def problem(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
) -> str:
    """What decides the tile: about how many heads and blocks of queries there are, how long their
    lists, how large a head.
    """
    batch, heads, queries, size = query.shape
    return describe_problem(
        TYPES.get(query.dtype),
        f"heads={rounded_size(batch * heads)}",
        f"blocks={rounded_size(blocks_of(queries))}",
        f"most={rounded_size(kept.shape[-1])}",
        f"size={size}",
        "causal" if is_causal else None,
    )


def plan(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
    *,
    tile: Tile | None = None,
) -> Launch:
    """A block for 64 queries of a head, a warp for 16 or 32 of them."""
    batch, heads, queries, size = query.shape
    kind = type_of(query, key, value)
    one_of("a head of", size, HEADS)
    if not scale > 0:
        raise DeclinedError(f"it takes a scale above 0, not {scale}")
    most = kept.shape[-1]
    said = problem(query, key, value, kept, lengths, is_causal, scale)
    cut = choose_tile(
        "block_sparse_attention",
        TILES,
        tile,
        said,
        out.device,
        _OF_HEADS_OF_64 if size == 64 else None,
    )
    return Launch(
        kernel="block_sparse_attention",
        entry=f"block_sparse_attention<{kind}, {size}, {TILES.arguments(cut)}>",
        grid=grid_of(blocks_of(queries), batch * heads, 1),
        block=(2 * BLOCK // cut["slabs"], 1, 1),
        shared_bytes=_shared_bytes(cut, size),
        arguments=(
            *(aligned(one.contiguous()) for one in (query, key, value)),
            kept.contiguous(),
            None if lengths is None else lengths.contiguous(),
            out,
            *(
                np.int32(countable(one))
                for one in (queries, key.shape[2], heads, most, int(is_causal))
            ),
            np.float32(scale),
        ),
    )


def blocks_of(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK)


def in_blocks(tokens: Tensor) -> Tensor:
    """(batch, heads, blocks, 64, numbers), zeros after the last token."""
    missing = -tokens.shape[2] % BLOCK
    padded = F.pad(tokens, (0, 0, 0, missing)) if missing else tokens
    return padded.reshape(*tokens.shape[:2], -1, BLOCK, tokens.shape[3])


def _limit(key: Tensor, lengths: Tensor | None) -> Tensor:
    """Up to where there are keys, for each of the batch: (batch, 1, 1, 1)."""
    keys = torch.full((len(key),), key.shape[2], device=key.device)
    return (keys if lengths is None else keys.minimum(lengths)).reshape(-1, 1, 1, 1)


def _is_full(kept: Tensor, blocks: int) -> bool:
    """Whether every list is as long as it can be, where that can be asked without waiting: then
    each query sees all that is listed.
    """
    is_traced = (
        torch.compiler.is_compiling()
        or torch.compiler.is_exporting()
        or get_proxy_mode() is not None
    )
    if is_traced or type(kept) is not Tensor or kept.device.type != "cpu" or not kept.numel():
        return False
    if torch._C._functorch.maybe_current_level() is not None:
        return False
    least, most = kept.aminmax()
    return bool(least >= 0) and bool(most < blocks)


def _in_order(kept: Tensor) -> Tensor:
    """The same lists ascending, nothing but -1 behind what they list."""
    is_listed = (kept < 0).cumsum(-1) == 0
    last = torch.iinfo(kept.dtype).max
    ordered = kept.masked_fill(~is_listed, last).sort(-1).values
    return ordered.masked_fill(ordered == last, -1)


def _seen(
    start: int, kept: Tensor, limit: Tensor, is_causal: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Which of the listed keys each query of a block sees, (batch, heads, blocks, 64 or 1, keys),
    and what is added to their scores.
    """
    places = kept.long()[..., None] * BLOCK + torch.arange(BLOCK, device=kept.device)
    visible = ((places >= 0) & (places < limit[..., None])).flatten(3)[..., None, :]
    if is_causal:
        own = start + torch.arange(kept.shape[2] * BLOCK, device=kept.device).reshape(-1, BLOCK, 1)
        visible = visible & (places.flatten(3)[..., None, :] <= own)
    if mask is None:
        return visible, None
    near = _masked(mask, start, kept)
    return (visible & near, None) if mask.dtype == torch.bool else (visible, near)


def _masked(mask: Tensor, start: int, kept: Tensor) -> Tensor:
    """What a mask says of the listed keys, for the blocks of queries from `start` on."""
    whole = BLOCK if mask.shape[2] > 1 else 1
    rows = mask[:, :, start : start + kept.shape[2] * BLOCK] if whole > 1 else mask
    padded = F.pad(rows, (0, -mask.shape[3] % BLOCK, 0, -rows.shape[2] % whole))
    blocks = padded.reshape(*rows.shape[:2], -1, whole, blocks_of(mask.shape[3]), BLOCK)
    index = kept.long().clamp(0, blocks.shape[4] - 1)[:, :, :, None, :, None]
    return torch.take_along_dim(blocks, index, dim=4).flatten(4)


def _gathered(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    kept: Tensor,
    visible: Tensor | None,
    added: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attention of some blocks of queries, each to its own list: a block becomes a head of torch's
    attention.
    """
    batch, heads, tokens, size = query.shape
    blocks, most = kept.shape[2:]
    pair = torch.arange(batch * heads, device=kept.device)[:, None]
    index = (
        kept.long().clamp(0, keys.shape[2] - 1).reshape(batch * heads, -1) + pair * keys.shape[2]
    ).flatten()
    mine = in_blocks(query).flatten(0, 1)
    rows = (one.reshape(-1, BLOCK * size).index_select(0, index) for one in (keys, values))
    near, far = (one.reshape(batch * heads, blocks, most * BLOCK, size) for one in rows)
    shown = None if added is None else added.expand(batch, heads, *added.shape[2:]).flatten(0, 1)
    made = _attended(
        mine, near, far, None if visible is None else visible.flatten(0, 1), shown, scale, dropout
    )
    return made.reshape(batch, heads, blocks * BLOCK, size)[:, :, :tokens]


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None,
    added: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """torch's attention; a query that sees nothing is shown everything and its answer replaced by
    zeros, so that gradients are numbers.
    """
    if not key.shape[2]:
        return torch.zeros_like(query)
    if visible is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
    is_blind = ~visible.any(-1, keepdim=True)
    shown = visible | is_blind
    mask = shown if added is None else added.masked_fill(~shown, float("-inf"))
    made = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
    )
    return made.masked_fill(is_blind, 0.0)


def _shared_bytes(tile: Tile, size: int) -> int:
    """Of `Sparse::Tile` in the source: queries, and stages of keys and values."""
    return (1 + 2 * tile["stages"]) * BLOCK * (size + 8) * 2


def _is_sound(tile: Tile) -> bool:
    """As many blocks as shared memory has room for with the smaller heads; two slabs take all
    registers that a lane can have.
    """
    has_memory = tile["blocks"] * (_shared_bytes(tile, min(HEADS)) + RESERVED_BYTES) <= SHARED_BYTES
    return has_memory and (tile["slabs"] == 1 or tile["blocks"] == 2)


TILES = Tiles(
    choices={
        "slabs": (1, 2),  # of 16 queries, that a warp has
        "stages": (2, 3, 4),
        "held": (0, 1),  # whether queries stay in registers
        "late": (0, 1),  # whether values are awaited only once the weights are there
        "blocks": (2, 3, 4),  # that a multiprocessor keeps registers for
    },
    default={"slabs": 1, "stages": 2, "held": 1, "late": 0, "blocks": 2},
    is_sound=_is_sound,
)
_OF_HEADS_OF_64 = {**TILES.default, "held": 0, "blocks": 4}

KERNEL = Kernel(
    name="block_sparse_attention",
    schema=(
        "(Tensor query, Tensor key, Tensor value, Tensor kept, Tensor? lengths, bool is_causal, "
        "float scale) -> Tensor"
    ),
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "block_sparse_attention<bfloat16, 64, 1, 2, 0, 0, 4>": Budget(
            registers=128, instructions=960
        ),
        "block_sparse_attention<float16, 128, 1, 2, 1, 0, 2>": Budget(
            registers=216, instructions=1350
        ),
        "block_sparse_attention<bfloat16, 64, 2, 2, 1, 0, 2>": Budget(
            registers=255, instructions=1590
        ),
    },
    tiles=TILES,
    problem=problem,
)
