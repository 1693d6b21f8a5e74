"""Other implementations of what a kernel computes on a GPU: SDPA by each of its backends, compiled
torch, FlexAttention, cuDNN. All are torch's.

A peer is built once per case and then called with the operator's own inputs. Compiled ones are
compiled for fixed shapes, and max-autotune without its own graphs, since every candidate is
captured in one of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from ...kernels import (
    block_gather,
    depthwise,
    depthwise_int8,
    pointwise,
    pointwise_int8,
    window_attention,
)
from ...kernels.activation import ACTIVATIONS
from . import int8_cases, sparse

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Peer:
    """An implementation of what a kernel computes; `seconds` is how long building it may take.

    `prepare` converts the operator's inputs to the peer's own, which is not timed. An aside is
    timed for comparison and is no rival: it computes more, or is our kernel in another setting.
    """

    name: str
    build: Callable[[], Function]
    seconds: float = 1.0
    prepare: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda inputs: inputs
    is_aside: bool = False


def of_windows() -> tuple[Peer, ...]:
    """Peers of Swin's attention; flash attention is not among them, since it takes no mask."""
    compose = window_attention.compose
    by_backend = tuple(
        Peer(f"SDPA {name}", lambda backend=backend: _by(backend, compose))  # type: ignore[misc]
        for name, backend in (
            ("efficient", SDPBackend.EFFICIENT_ATTENTION),
            ("cuDNN", SDPBackend.CUDNN_ATTENTION),
            ("math", SDPBackend.MATH),
        )
    )
    return (*by_backend, *_compiled(compose), Peer("Flex", lambda: _compile(_flex_windows), 10.0))


def of_depthwise() -> tuple[Peer, ...]:
    """Peers of a depthwise convolution."""
    return (Peer("cuDNN", lambda: _by_cudnn(depthwise.compose)), *_compiled(depthwise.compose))


def of_pointwise() -> tuple[Peer, ...]:
    """Peers of a linear layer or 1×1 convolution."""
    as_images = Peer("cuDNN 1×1", lambda: _by_cudnn(_convolved))
    return (Peer("cuBLAS", lambda: pointwise.compose), as_images, *_compiled(pointwise.compose))


def of_depthwise_int8() -> tuple[Peer, ...]:
    """Peers of an int8 depthwise convolution: torch has no operator for it, and fp32 is exact for
    its sums.
    """
    ours = Peer(
        "ours in bf16",
        lambda: torch.ops.paifuser.depthwise,
        prepare=int8_cases.as_images,
        is_aside=True,
    )
    return (
        Peer("cuDNN in fp32", lambda: _by_cudnn(depthwise_int8.compose)),
        *_compiled(depthwise_int8.compose),
        ours,
    )


def of_pointwise_int8() -> tuple[Peer, ...]:
    """Peers of an int8 linear layer: torch's own product, with the rest compiled."""
    ours = Peer(
        "ours in bf16",
        lambda: torch.ops.paifuser.pointwise,
        prepare=int8_cases.as_rows,
        is_aside=True,
    )
    in_fp32 = Peer("cuBLAS in fp32", lambda: pointwise_int8.compose)
    return (
        Peer("int_mm", lambda: int8_cases.by_int_mm),
        in_fp32,
        *_compiled(int8_cases.by_int_mm),
        ours,
    )


def of_block_sparse() -> tuple[Peer, ...]:
    """Peers of attention to chosen blocks; as asides full attention, and ours with the choice of
    blocks.
    """
    to_all = tuple(
        Peer(
            f"SDPA {name} to all",
            partial(_by, backend, sparse.attend_to_all),
            is_aside=True,
        )
        for name, backend in (
            ("flash", SDPBackend.FLASH_ATTENTION),
            ("cuDNN", SDPBackend.CUDNN_ATTENTION),
        )
    )
    return (
        *to_all,
        Peer("gathered", lambda: block_gather.compose),
        Peer("Flex", lambda: _compile(sparse.attend_by_flex), 10.0, prepare=sparse.for_flex),
        Peer("ours with the choice", lambda: sparse.choose_and_attend, is_aside=True),
        Peer(
            "Flex with the choice",
            lambda: sparse.with_choice(_compile(sparse.attend_by_flex)),
            10.0,
            is_aside=True,
        ),
    )


def _compiled(compose: Function) -> tuple[Peer, ...]:
    return (
        Peer("compiled", lambda: _compile(compose), 6.0),
        Peer("max-autotune", lambda: _compile(compose, mode="max-autotune-no-cudagraphs"), 15.0),
    )


def _compile(function: Function, **options: Any) -> Function:
    compiled: Function = torch.compile(function, dynamic=False, fullgraph=True, **options)
    return compiled


def _by(backend: SDPBackend, compose: Function) -> Function:
    def run(*inputs: Any) -> Tensor:
        with sdpa_kernel(backend):
            return compose(*inputs)

    return run


def _by_cudnn(compose: Function) -> Function:
    def run(*inputs: Any) -> Tensor:
        before = torch.backends.cudnn.benchmark
        # every algorithm is tried at the first call, and the best one used from then on
        torch.backends.cudnn.benchmark = True
        try:
            return compose(*inputs)
        finally:
            torch.backends.cudnn.benchmark = before

    return run


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """A linear layer over (…, in) as a 1×1 convolution of channels-last images."""
    image = x.reshape(x.shape[0], -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    output = (
        F.conv2d(image, weight[:, :, None, None], bias)
        .permute(0, 2, 3, 1)
        .reshape(*x.shape[:-1], -1)
    )
    return ACTIVATIONS[activation](output if residual is None else output + residual)


def _flex_windows(
    qkv: Tensor, bias: Tensor, window: int, shift: tuple[int, int], scale: float
) -> Tensor:
    query, key, value = window_attention.partition(qkv, window, shift)
    distances = window_attention.distances(window, bias.device)
    added = (
        window_attention.mask(qkv.shape[1], qkv.shape[2], window, shift, bias)
        if any(shift)
        else None
    )

    def modify(score: Tensor, index: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        biased = score + bias[head, distances[row, column]]
        return biased if added is None else biased + added[index % added.shape[0], 0, row, column]

    attended = flex_attention(query, key, value, score_mod=modify, scale=scale)
    assert isinstance(attended, Tensor)
    return window_attention.reverse(attended, qkv, window, shift)
