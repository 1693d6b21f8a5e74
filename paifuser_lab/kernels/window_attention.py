"""Window attention (Swin): everything between the qkv and the output projection, in one pass over
memory.

Fused: cyclic shift, window partition, scaled products, relative position bias, shift mask, softmax,
sum of values, and the reverse. Never in memory: the shifted image, the windows, the scores, the
expanded bias, the mask.

Floor for a window of 49 tokens and a head of 32 in 16 bits: 3 × 3,136 bytes in, 3,136 out, which an
H200 moves in 2.9 ns at 4.3 TB/s; 307,328 operations, 0.4 ns at 790 TFLOP/s. It is bound by the
instructions it issues: see kernels/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import (
    TYPES,
    Budget,
    Cut,
    Kernel,
    checked_count,
    require_one_of,
    require_shape,
    rounded_size,
    type_of,
)
from .tiles import Tile, Tiles

WINDOWS = (7, 8, 12)
HEADS = (32, 64)  # sizes of a head
_MASKED = -100.0  # what Swin adds to the score of two tokens that only the shift brought together


def attend_windows(
    qkv: Tensor,
    bias: Tensor,
    *,
    window: int,
    shift: tuple[int, int] = (0, 0),
    scale: float | None = None,
) -> Tensor:
    """Attention within windows of an image.

    `qkv` is (batch, height, width, 3, heads, head size), in image order; `bias` is (heads,
    (2·window - 1)²), Swin's table transposed; the output is (batch, height, width, heads · head
    size).
    """
    output: Tensor = torch.ops.paifuser.window_attention(
        qkv, bias, window, shift, qkv.shape[-1] ** -0.5 if scale is None else scale
    )
    return output


@dataclass(frozen=True)
class Inputs:
    """The operator's arguments."""

    qkv: Tensor
    bias: Tensor
    window: int
    shift: tuple[int, int]
    scale: float


def compute(inputs: Inputs) -> Tensor:
    """The reference, composed of torch operators."""
    qkv, window, shift = inputs.qkv, inputs.window, inputs.shift
    query, key, value = partition(qkv, window, shift)
    added = inputs.bias[:, distances(window, qkv.device)].to(qkv.dtype)[None]
    if any(shift):
        added = (added + mask(qkv.shape[1], qkv.shape[2], window, shift, added)).repeat(
            len(qkv), 1, 1, 1
        )
    attended = F.scaled_dot_product_attention(
        query, key, value, attn_mask=added, scale=inputs.scale
    )
    return reverse(attended, qkv, window, shift)


def partition(qkv: Tensor, window: int, shift: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: (windows, heads, tokens, head size), of the shifted image."""
    _, height, width, _, heads, size = qkv.shape
    shifted = torch.roll(qkv, (-shift[0], -shift[1]), dims=(1, 2)) if any(shift) else qkv
    parts = shifted.reshape(-1, height // window, window, width // window, window, 3, heads, size)
    query, key, value = parts.permute(5, 0, 1, 3, 6, 2, 4, 7).reshape(3, -1, heads, window**2, size)
    return query, key, value


def reverse(attended: Tensor, qkv: Tensor, window: int, shift: tuple[int, int]) -> Tensor:
    """The image that was partitioned into windows, each token at its original position."""
    batch, height, width, _, heads, size = qkv.shape
    image = attended.reshape(
        batch, height // window, width // window, heads, window, window, size
    ).permute(0, 1, 4, 2, 5, 3, 6)
    image = image.reshape(batch, height, width, heads * size)
    return torch.roll(image, tuple(shift), dims=(1, 2)) if any(shift) else image


def allocate(inputs: Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    qkv, window = inputs.qkv, inputs.window
    if qkv.dim() != 6 or qkv.shape[3] != 3:
        raise KernelError(
            "window_attention takes qkv as (batch, height, width, 3, heads, head size), not "
            f"{tuple(qkv.shape)}; reshape the projection's output."
        )
    batch, height, width, _, heads, size = qkv.shape
    if window < 1 or height % window or width % window:
        raise KernelError(
            f"window_attention cannot cut an image of {height} × {width} into windows of {window}; "
            "pad it first."
        )
    require_shape("window_attention", "a bias", inputs.bias, (heads, (2 * window - 1) ** 2))
    if len(inputs.shift) != 2 or not all(0 <= step < window for step in inputs.shift):
        raise KernelError(
            f"window_attention takes two shifts from 0 to {window - 1}, down and right, not "
            f"{tuple(inputs.shift)}."
        )
    return qkv.new_empty((batch, height, width, heads * size))


def words(inputs: Inputs) -> Iterable[str]:
    """What decides the tile: the number of windows and heads, their sizes, and the shift."""
    batch, height, width, _, heads, size = inputs.qkv.shape
    count = batch * (height // inputs.window) * (width // inputs.window) * heads
    return (
        TYPES.get(inputs.qkv.dtype, ""),
        f"windows={rounded_size(count)}",
        f"window={inputs.window}",
        f"size={size}",
        "shifted" if any(inputs.shift) else "",
    )


def cut(out: Tensor, inputs: Inputs, tile: Tile) -> Cut:
    """A block per head of a window, a warp per 16 of its queries, or 2 or 4 times as many."""
    batch, height, width, _, heads, size = inputs.qkv.shape
    window = inputs.window
    kind = type_of(inputs.qkv)
    require_one_of("a window of", window, WINDOWS)
    require_one_of("a head of", size, HEADS)
    checked_count(batch * height * width)
    warps = -(-(window**2) // (16 * tile["slabs"]))
    return Cut(
        template=(kind, window, size),
        grid=(heads, width // window, batch * (height // window)),
        threads=32 * warps,
        shared_bytes=_shared_bytes(16 * tile["slabs"] * warps, window, size),
        tensors=(inputs.qkv, inputs.bias.float()),
        numbers=(height, width, heads, *inputs.shift, inputs.scale),
    )


def _shared_bytes(rows: int, window: int, size: int) -> int:
    """The size of `Window::Tile` in the source: q, k and v, three integers a token, the bias."""
    plain = 3 * rows * (size + 8) * 2 + 3 * rows * 4 + (2 * window - 1) ** 2 * 4
    return -(-plain // 16) * 16


def distances(window: int, device: torch.device) -> Tensor:
    """The index of each pair of tokens into the bias table."""
    index = torch.arange(window**2, device=device)
    down, right = index // window, index % window
    return (
        (down[:, None] - down + window - 1) * (2 * window - 1) + right[:, None] - right + window - 1
    )


def mask(height: int, width: int, window: int, shift: tuple[int, int], like: Tensor) -> Tensor:
    """For each window of an image, what is added to the scores of tokens from opposite edges."""
    regions = [
        _regions(length, window, by, like.device)
        for length, by in zip((height, width), shift, strict=True)
    ]
    image = regions[0][:, None] * 3 + regions[1]
    tokens = (
        image.reshape(height // window, window, width // window, window)
        .transpose(1, 2)
        .reshape(-1, 1, window**2)
    )
    return (tokens[..., None] != tokens[..., None, :]).to(like.dtype) * _MASKED


def _regions(length: int, window: int, by: int, device: torch.device) -> Tensor:
    index = torch.arange(length, device=device)
    return (index >= length - window).long() + (index >= length - by).long()


TILES = Tiles(
    choices={
        "slabs": (1, 2, 4),  # of 16 queries, per warp
        "late": (0, 1),  # whether to wait for the values only once the weights are computed
        "warps": (0, 24, 32, 40),  # per multiprocessor, by limiting registers; 0 sets no limit
    },
    default={"slabs": 1, "late": 0, "warps": 0},
    # a slab takes some 40 registers of a lane
    is_valid=lambda tile: tile["slabs"] * tile["warps"] <= 48,
)

KERNEL = Kernel(
    name="window_attention",
    inputs=Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    words=words,
    budgets={
        "window_attention<bfloat16, 7, 32, 1, 0, 0>": Budget(registers=56, instructions=705),
        "window_attention<float16, 7, 64, 1, 0, 0>": Budget(registers=72, instructions=850),
        "window_attention<bfloat16, 8, 32, 1, 0, 0>": Budget(registers=64, instructions=750),
        "window_attention<bfloat16, 12, 32, 1, 0, 0>": Budget(registers=112, instructions=1330),
        "window_attention<float16, 12, 64, 1, 0, 0>": Budget(registers=160, instructions=1530),
        "window_attention<bfloat16, 7, 32, 2, 0, 0>": Budget(registers=96, instructions=1200),
    },
    tiles=TILES,
)
