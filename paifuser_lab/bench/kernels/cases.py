"""Each kernel at the shapes of real models, and at small ones for the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ...kernels import KERNELS, choose_blocks, depthwise_int8, pointwise_int8
from ...kernels.block_gather import BLOCK, blocks_of
from ...kernels.kernel import Kernel
from . import int8_cases, peers
from .checking import Inputs, allowed_for_means, allowed_for_quantized, allowed_for_sums
from .peers import Peer

TYPE = torch.bfloat16
T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Case:
    """A kernel at one shape: its inputs, operations, allowed error, and peers."""

    kernel: Kernel
    name: str
    make: Callable[[torch.device], Inputs]
    operations: int
    allowed: Callable[[Inputs, Tensor], Tensor]
    peers: Callable[[], tuple[Peer, ...]]


def cases(*, is_small: bool = False) -> tuple[Case, ...]:
    """All cases, real or small."""

    def of(real: T, small: T) -> T:
        return small if is_small else real

    batch, images, side = of(32, 1), of(64, 1), of(56, 14)
    return (
        _windows("Swin-T stage 1", batch, side, heads=of(3, 1), shift=0),
        _windows("Swin-T stage 1, shifted", batch, side, heads=of(3, 1), shift=3),
        _windows("Swin-T stage 3, shifted", batch, 14, heads=of(12, 1), shift=3),
        _depthwise("MobileNetV2 3×3", images, 96, side, kernel=3, activation="relu6"),
        _depthwise(
            "EfficientNet 5×5, stride 2",
            images,
            of(240, 72),
            of(28, 13),
            kernel=5,
            stride=2,
            activation="silu",
        ),
        _depthwise("ConvNeXt-T 7×7", images, 96, side, kernel=7),
        _pointwise(
            "ResNet-50 64 → 256, residual",
            (images, side, side),
            64,
            of(256, 136),
            "relu",
            has_residual=True,
        ),
        _pointwise("MobileNetV2 24 → 144", (images, side, side), 24, of(144, 72), "relu6"),
        _pointwise("ViT-B 768 → 3072", (images, of(197, 19)), of(768, 96), of(3072, 200), "gelu"),
        _depthwise_int8(
            "MobileNetV2 side of 3, int8", images, 96, side, kernel=3, activation="relu6"
        ),
        _depthwise_int8("ConvNeXt-T side of 7, int8", images, 96, side, kernel=7),
        _pointwise_int8(
            "ResNet-50 64 → 256, residual, int8",
            (images, side, side),
            64,
            of(256, 144),
            "relu",
            has_residual=True,
        ),
        _pointwise_int8(
            "MobileNetV2 32 → 192, int8", (images, of(28, 14), of(28, 14)), 32, of(192, 80), "relu6"
        ),
        _sparse(
            "8k tokens, a quarter, causal",
            heads=of(16, 1),
            tokens=of(8192, 256),
            size=128,
            density=0.25,
            is_causal=True,
        ),
        _sparse(
            "16k tokens, a tenth",
            heads=of(16, 1),
            tokens=of(16_384, 320),
            size=64,
            density=of(0.1, 0.4),
        ),
    )


def floor_bytes(inputs: Inputs, out: Tensor) -> int:
    """The least bytes that cross the memory: each input read once, the output written once."""
    return sum(value.nbytes for value in (*inputs, out) if isinstance(value, Tensor))


def _windows(
    name: str, batch: int, side: int, *, heads: int, shift: int, window: int = 7, size: int = 32
) -> Case:
    def make(device: torch.device) -> Inputs:
        qkv = torch.randn(batch, side, side, 3, heads, size, device=device, dtype=TYPE)
        return (
            qkv,
            torch.randn(heads, (2 * window - 1) ** 2, device=device),
            window,
            (shift, shift),
            size**-0.5,
        )

    operations = 4 * batch * side**2 * window**2 * heads * size
    allowed = allowed_for_means(lambda inputs: inputs[0][..., 2, :, :])
    return Case(KERNELS["window_attention"], name, make, operations, allowed, peers.of_windows)


def _depthwise(
    name: str,
    batch: int,
    channels: int,
    side: int,
    *,
    kernel: int,
    stride: int = 1,
    activation: str = "none",
) -> Case:
    def make(device: torch.device) -> Inputs:
        x = torch.randn(batch, channels, side, side, device=device, dtype=TYPE).to(
            memory_format=torch.channels_last
        )
        weight = torch.randn(channels, 1, kernel, kernel, device=device, dtype=TYPE) / kernel
        return (
            x,
            weight,
            torch.randn(channels, device=device, dtype=TYPE),
            None,
            stride,
            kernel // 2,
            activation,
        )

    operations = 2 * batch * channels * (-(-side // stride)) ** 2 * kernel**2
    return Case(KERNELS["depthwise"], name, make, operations, allowed_for_sums, peers.of_depthwise)


def _pointwise(
    name: str,
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    activation: str,
    *,
    has_residual: bool = False,
) -> Case:
    def make(device: torch.device) -> Inputs:
        x = torch.randn(*rows, depth, device=device, dtype=TYPE)
        weight = torch.randn(columns, depth, device=device, dtype=TYPE) / depth**0.5
        residual = torch.randn(*rows, columns, device=device, dtype=TYPE) if has_residual else None
        return x, weight, torch.randn(columns, device=device, dtype=TYPE), residual, activation

    operations = 2 * torch.Size(rows).numel() * depth * columns
    return Case(KERNELS["pointwise"], name, make, operations, allowed_for_sums, peers.of_pointwise)


def _depthwise_int8(
    name: str, batch: int, channels: int, side: int, *, kernel: int, activation: str = "none"
) -> Case:
    def make(device: torch.device) -> Inputs:
        return int8_cases.images(batch, channels, side, kernel, activation, device)

    operations = 2 * batch * channels * side**2 * kernel**2
    allowed = allowed_for_quantized(depthwise_int8.float_output)
    return Case(KERNELS["depthwise_int8"], name, make, operations, allowed, peers.of_depthwise_int8)


def _pointwise_int8(
    name: str,
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    activation: str,
    *,
    has_residual: bool = False,
) -> Case:
    def make(device: torch.device) -> Inputs:
        return int8_cases.rows(rows, depth, columns, activation, device, has_residual=has_residual)

    operations = 2 * torch.Size(rows).numel() * depth * columns
    allowed = allowed_for_quantized(pointwise_int8.float_output)
    return Case(KERNELS["pointwise_int8"], name, make, operations, allowed, peers.of_pointwise_int8)


def _sparse(
    name: str, *, heads: int, tokens: int, size: int, density: float, is_causal: bool = False
) -> Case:
    def make(device: torch.device) -> Inputs:
        query, key, value = (
            torch.randn(1, heads, tokens, size, device=device, dtype=TYPE) for _ in range(3)
        )
        blocks = choose_blocks(query, key, density=density, is_causal=is_causal)
        return query, key, value, blocks, None, is_causal, size**-0.5

    down = blocks_of(tokens)
    keep = max(1, round(density * down))
    listed = sum(min(keep, row + 1) for row in range(down)) if is_causal else keep * down
    operations = 4 * heads * listed * BLOCK**2 * size
    return Case(
        KERNELS["block_sparse_attention"],
        name,
        make,
        operations,
        allowed_for_means(lambda inputs: inputs[2]),
        peers.of_block_sparse,
    )
