"""Attention to listed blocks of keys: the other blocks are neither read nor computed.

Fused: scaled products, causal and padding masks, softmax, the sum of values. Never in memory:
scores, weights, masks. No block mask is built and the host does not wait: `block_choice` computes
the lists by a few torch operators.

Floor for 16 heads of 128 over 16,384 tokens in bf16: 4 × 67 MB, 63 µs on an H200 at 4.3 TB/s; 2.2 ·
10¹² operations times the density, 696 µs at a density of a quarter and 790 TFLOP/s, of which
`mma.sync` reaches about half.

On a CPU, and where the kernel does not run, torch gathers the listed blocks and passes them to its
own attention, some blocks of queries at a time. On a Xeon with AVX-512, one core or two, six heads
of 64 over 1,024 to 4,096 tokens, that and the choice took a fifth to a third of the time of
full attention at a density of a tenth, half of it at a quarter, 0.9 to 1.2 times as long at a
half and 2 to 3.3 times at 1; where both are causal 0.6 to 0.8 times as long at a tenth and longer
than full attention from a quarter on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import KernelError
from .block_gather import BLOCK, blocks_of, compose
from .kernel import (
    TYPES,
    Budget,
    Cut,
    DeclinedError,
    Kernel,
    require_one_of,
    rounded_size,
    type_of,
)
from .tiles import RESERVED_BYTES, SHARED_BYTES, Tile, Tiles

HEADS = (64, 128)  # sizes of a head


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

    Tensors are (batch, heads, tokens, head size) as for torch's attention; `kept` is (batch, heads,
    blocks of queries, most) in int32, each block once, and the first negative number ends a list:
    `choose_blocks` returns it. `lengths`, (batch) in int32, is the number of keys, the rest being
    padding. A causal query sees keys up to its own position; one that sees no key outputs 0.
    """
    scaled = query.shape[-1] ** -0.5 if scale is None else scale
    output: Tensor = torch.ops.paifuser.block_sparse_attention(
        query, key, value, kept, lengths, is_causal, scaled
    )
    return output


@dataclass(frozen=True)
class Inputs:
    """The operator's arguments."""

    query: Tensor
    key: Tensor
    value: Tensor
    kept: Tensor
    lengths: Tensor | None
    is_causal: bool
    scale: float


def compute(inputs: Inputs) -> Tensor:
    """The reference, composed of torch operators."""
    return compose(**vars(inputs))


def allocate(inputs: Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    query, key, kept, lengths = inputs.query, inputs.key, inputs.kept, inputs.lengths
    if query.dim() != 4 or key.dim() != 4 or key.shape != inputs.value.shape:
        raise KernelError(
            "block_sparse_attention takes queries, keys and values as (batch, heads, tokens, head "
            f"size), not {tuple(query.shape)}, {tuple(key.shape)} and {tuple(inputs.value.shape)}."
        )
    batch, heads, queries, size = query.shape
    if (batch, heads, size) != (*key.shape[:2], key.shape[3]):
        raise KernelError(
            "block_sparse_attention takes keys with as many heads and the same head size as "
            f"queries, not {tuple(key.shape)} for {tuple(query.shape)}; repeat the keys of shared "
            "heads."
        )
    rows = (batch, heads, blocks_of(queries))
    if kept.dtype != torch.int32 or kept.dim() != 4 or tuple(kept.shape[:3]) != rows:
        raise KernelError(
            f"block_sparse_attention takes lists of blocks as {rows} × most in int32, not "
            f"{tuple(kept.shape)} in {kept.dtype}; `choose_blocks` returns them."
        )
    if lengths is not None and (lengths.dtype != torch.int32 or tuple(lengths.shape) != (batch,)):
        raise KernelError(
            f"block_sparse_attention takes lengths as ({batch},) in int32, not "
            f"{tuple(lengths.shape)} in {lengths.dtype}."
        )
    return query.new_empty(query.shape)


def words(inputs: Inputs) -> Iterable[str]:
    """What decides the tile: numbers of heads and blocks, the length of lists, the head size."""
    batch, heads, queries, size = inputs.query.shape
    return (
        TYPES.get(inputs.query.dtype, ""),
        f"heads={rounded_size(batch * heads)}",
        f"blocks={rounded_size(blocks_of(queries))}",
        f"most={rounded_size(inputs.kept.shape[-1])}",
        f"size={size}",
        "causal" if inputs.is_causal else "",
    )


def cut(out: Tensor, inputs: Inputs, tile: Tile) -> Cut:
    """A block per 64 queries of a head, a warp per 16 or 32 of them."""
    batch, heads, queries, size = inputs.query.shape
    tokens = (inputs.query, inputs.key, inputs.value)
    kind = type_of(*tokens)
    require_one_of("a head of", size, HEADS)
    if not inputs.scale > 0:
        raise DeclinedError(f"it takes a scale above 0, not {inputs.scale}")
    keys, most = inputs.key.shape[2], inputs.kept.shape[-1]
    return Cut(
        template=(kind, size),
        grid=(blocks_of(queries), batch * heads, 1),
        threads=2 * BLOCK // tile["slabs"],
        shared_bytes=_shared_bytes(tile, size),
        tensors=(*tokens, inputs.kept, inputs.lengths),
        numbers=(queries, keys, heads, most, inputs.is_causal, inputs.scale),
    )


def default_tile(inputs: Inputs) -> Tile:
    """With heads of 64, queries are read again, in half as many registers."""
    is_small = inputs.query.shape[-1] == min(HEADS)
    return {**TILES.default, "held": 0, "blocks": 4} if is_small else TILES.default


def _shared_bytes(tile: Tile, size: int) -> int:
    """The size of `Sparse::Tile` in the source: queries, and stages of keys and values."""
    return (1 + 2 * tile["stages"]) * BLOCK * (size + 8) * 2


def _is_valid(tile: Tile) -> bool:
    """Whether the blocks fit shared memory at the smaller head size, and a lane its registers."""
    has_memory = tile["blocks"] * (_shared_bytes(tile, min(HEADS)) + RESERVED_BYTES) <= SHARED_BYTES
    return has_memory and (tile["slabs"] == 1 or tile["blocks"] == 2)


TILES = Tiles(
    choices={
        "slabs": (1, 2),  # of 16 queries, per warp
        "stages": (2, 3, 4),
        "held": (0, 1),  # whether queries stay in registers
        "late": (0, 1),  # whether to wait for the values only once the weights are computed
        "blocks": (2, 3, 4),  # per multiprocessor, by limiting registers
    },
    default={"slabs": 1, "stages": 2, "held": 1, "late": 0, "blocks": 2},
    is_valid=_is_valid,
)

KERNEL = Kernel(
    name="block_sparse_attention",
    inputs=Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    words=words,
    default_tile=default_tile,
    budgets={
        "block_sparse_attention<bfloat16, 64, 1, 2, 0, 0, 4>": Budget(128, 960),
        "block_sparse_attention<float16, 128, 1, 2, 1, 0, 2>": Budget(216, 1350),
        "block_sparse_attention<bfloat16, 64, 2, 2, 1, 0, 2>": Budget(255, 1590),
    },
    tiles=TILES,
)
