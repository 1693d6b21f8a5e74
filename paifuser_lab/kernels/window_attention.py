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

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import Budget, Kernel
from .launch import TYPES, Launch, aligned, checked_count, grid_of, require_one_of, type_of
from .tile_choice import choose_tile, describe_problem, rounded_size
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


def compose(qkv: Tensor, bias: Tensor, window: int, shift: tuple[int, int], scale: float) -> Tensor:
    """The reference, composed of torch operators."""
    query, key, value = partition(qkv, window, shift)
    added = bias[:, distances(window, bias.device)].to(qkv.dtype)[None]
    if any(shift):
        added = (added + mask(qkv.shape[1], qkv.shape[2], window, shift, added)).repeat(
            len(qkv), 1, 1, 1
        )
    return reverse(
        F.scaled_dot_product_attention(query, key, value, attn_mask=added, scale=scale),
        qkv,
        window,
        shift,
    )


def partition(qkv: Tensor, window: int, shift: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of each window of the shifted image: (windows, heads, tokens, head
    size).
    """
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


def empty(qkv: Tensor, bias: Tensor, window: int, shift: tuple[int, int], scale: float) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
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
    if tuple(bias.shape) != (heads, (2 * window - 1) ** 2):
        raise KernelError(
            f"window_attention takes a bias of {heads} heads × {(2 * window - 1) ** 2} distances, "
            f"not {tuple(bias.shape)}."
        )
    if len(shift) != 2 or not all(0 <= step < window for step in shift):
        raise KernelError(
            f"window_attention takes two shifts from 0 to {window - 1}, down and right, not "
            f"{tuple(shift)}."
        )
    return qkv.new_empty((batch, height, width, heads * size))


def problem(qkv: Tensor, bias: Tensor, window: int, shift: tuple[int, int], scale: float) -> str:
    """What decides the tile: the approximate number of windows and heads, their sizes, and whether
    the image is shifted.
    """
    batch, height, width, _, heads, size = qkv.shape
    count = batch * (height // window) * (width // window) * heads
    return describe_problem(
        TYPES.get(qkv.dtype),
        f"windows={rounded_size(count)}",
        f"window={window}",
        f"size={size}",
        "shifted" if any(shift) else None,
    )


def plan(
    out: Tensor,
    qkv: Tensor,
    bias: Tensor,
    window: int,
    shift: tuple[int, int],
    scale: float,
    *,
    tile: Tile | None = None,
) -> Launch:
    """A block per head of a window, a warp per 16 of its queries, or 2 or 4 times as many."""
    batch, height, width, _, heads, size = qkv.shape
    kind = type_of(qkv)
    require_one_of("a window of", window, WINDOWS)
    require_one_of("a head of", size, HEADS)
    checked_count(batch * height * width)
    chosen = choose_tile(
        "window_attention", TILES, tile, problem(qkv, bias, window, shift, scale), out.device
    )
    warps = -(-(window**2) // (16 * chosen["slabs"]))
    return Launch(
        kernel="window_attention",
        entry=f"window_attention<{kind}, {window}, {size}, {TILES.arguments(chosen)}>",
        grid=grid_of(heads, width // window, batch * (height // window)),
        block=(32 * warps, 1, 1),
        shared_bytes=_shared_bytes(16 * chosen["slabs"] * warps, window, size),
        arguments=(
            aligned(qkv.contiguous()),
            bias.float().contiguous(),
            out,
            *(np.int32(number) for number in (height, width, heads, *shift)),
            np.float32(scale),
        ),
    )


def _shared_bytes(rows: int, window: int, size: int) -> int:
    """The size of `Window::Tile` in the source: queries, keys and values with a padded pitch, three
    integers per token, the bias.
    """
    plain = 3 * rows * (size + 8) * 2 + 3 * rows * 4 + (2 * window - 1) ** 2 * 4
    return -(-plain // 16) * 16


def distances(window: int, device: torch.device) -> Tensor:
    """The index of each pair of tokens into the bias table, by their vertical and horizontal
    distance.
    """
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
    schema="(Tensor qkv, Tensor bias, int window, int[2] shift, float scale) -> Tensor",
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "window_attention<bfloat16, 7, 32, 1, 0, 0>": Budget(registers=56, instructions=705),
        "window_attention<float16, 7, 64, 1, 0, 0>": Budget(registers=72, instructions=850),
        "window_attention<bfloat16, 8, 32, 1, 0, 0>": Budget(registers=64, instructions=750),
        "window_attention<bfloat16, 12, 32, 1, 0, 0>": Budget(registers=112, instructions=1330),
        "window_attention<float16, 12, 64, 1, 0, 0>": Budget(registers=160, instructions=1530),
        "window_attention<bfloat16, 7, 32, 2, 0, 0>": Budget(registers=96, instructions=1200),
    },
    tiles=TILES,
    problem=problem,
)
