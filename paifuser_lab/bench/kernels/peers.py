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
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ...kernels import KERNELS, attend_to_blocks, choose_blocks
from ...kernels.activation import ACTIVATIONS
from ...kernels.block_gather import BLOCK, blocks_of
from ...kernels.block_sparse_attention import Inputs as SparseInputs
from ...kernels.quantized import Int8Inputs
from ...kernels.window_attention import distances, mask, partition, reverse

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
    compose = KERNELS["window_attention"].compose
    return (
        Peer("SDPA efficient", partial(_by, SDPBackend.EFFICIENT_ATTENTION, compose)),
        Peer("SDPA cuDNN", partial(_by, SDPBackend.CUDNN_ATTENTION, compose)),
        Peer("SDPA math", partial(_by, SDPBackend.MATH, compose)),
        *_compiled(compose),
        Peer("Flex", lambda: _compile(flex_windows), 10.0),
    )


def of_depthwise() -> tuple[Peer, ...]:
    """Peers of a depthwise convolution."""
    compose = KERNELS["depthwise"].compose
    return (Peer("cuDNN", lambda: _by_cudnn(compose)), *_compiled(compose))


def of_pointwise() -> tuple[Peer, ...]:
    """Peers of a linear layer or 1×1 convolution."""
    compose = KERNELS["pointwise"].compose
    as_images = Peer("cuDNN 1×1", lambda: _by_cudnn(convolved))
    return (Peer("cuBLAS", lambda: compose), as_images, *_compiled(compose))


def of_depthwise_int8() -> tuple[Peer, ...]:
    """Peers of an int8 depthwise convolution, for which torch has no operator."""
    compose = KERNELS["depthwise_int8"].compose
    return (
        Peer("cuDNN in fp32", lambda: _by_cudnn(compose)),
        *_compiled(compose),
        _ours_in_bf16("depthwise", "depthwise_int8"),
    )


def of_pointwise_int8() -> tuple[Peer, ...]:
    """Peers of an int8 linear layer: torch's own product, with the rest compiled."""
    return (
        Peer("int_mm", lambda: by_int_mm),
        Peer("cuBLAS in fp32", lambda: KERNELS["pointwise_int8"].compose),
        *_compiled(by_int_mm),
        _ours_in_bf16("pointwise", "pointwise_int8"),
    )


def of_block_sparse() -> tuple[Peer, ...]:
    """Peers of attention to chosen blocks; attention to all, and choosing them, are asides."""
    flash, cudnn = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
    return (
        Peer("SDPA flash to all", partial(_by, flash, attend_to_all), is_aside=True),
        Peer("SDPA cuDNN to all", partial(_by, cudnn, attend_to_all), is_aside=True),
        Peer("gathered", lambda: KERNELS["block_sparse_attention"].compose),
        Peer("Flex", lambda: _compile(attend_by_flex), 10.0, prepare=for_flex),
        Peer("ours with the choice", lambda: choose_and_attend, is_aside=True),
        Peer(
            "Flex with the choice",
            lambda: with_choice(_compile(attend_by_flex)),
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


def convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """A linear layer over (…, in) as a 1×1 convolution of channels-last images."""
    image = x.reshape(x.shape[0], -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    output = F.conv2d(image, weight[:, :, None, None], bias).permute(0, 2, 3, 1)
    output = output.reshape(*x.shape[:-1], -1)
    return ACTIVATIONS[activation](output if residual is None else output + residual)


# int8


def by_int_mm(*arguments: Any) -> Tensor:
    """A linear layer by torch's own int8 product."""
    inputs = Int8Inputs(*arguments)
    shape = inputs.x.shape
    sums = torch._int_mm(inputs.x.reshape(-1, shape[-1]), inputs.weight.t())
    if inputs.sums is not None:
        sums = sums - inputs.zero * inputs.sums
    scaled = (sums.to(inputs.scales.dtype) * inputs.scales).reshape(*shape[:-1], -1)
    output = scaled + inputs.float_residual()
    output = output if inputs.bias is None else output + inputs.bias
    return inputs.rounded(inputs.activated(output))


def _ours_in_bf16(name: str, quantized: str) -> Peer:
    """Our kernel of the same layer in bf16."""
    prepare = partial(in_bf16, quantized)
    operator = getattr(torch.ops.paifuser, name)
    return Peer("ours in bf16", lambda: operator, prepare=prepare, is_aside=True)


def in_bf16(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """An int8 kernel's arguments as those of the same layer in bf16."""
    inputs = KERNELS[name].inputs(*arguments)
    scales = inputs.scales.reshape(-1, *[1] * (inputs.weight.dim() - 1))
    residual = inputs.float_residual()
    values = (
        inputs.x.float() - inputs.zero,
        inputs.weight * scales,
        inputs.bias,
        residual if isinstance(residual, Tensor) else None,
    )
    floats = (None if value is None else value.bfloat16() for value in values)
    geometry = () if name == "pointwise_int8" else (inputs.stride, inputs.padding)
    return (*floats, *geometry, inputs.activation)


# windows


def flex_windows(
    qkv: Tensor, bias: Tensor, window: int, shift: tuple[int, int], scale: float
) -> Tensor:
    """Window attention by FlexAttention."""
    query, key, value = partition(qkv, window, shift)
    index = distances(window, bias.device)
    added = mask(qkv.shape[1], qkv.shape[2], window, shift, bias) if any(shift) else None

    def modify(score: Tensor, place: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        biased = score + bias[head, index[row, column]]
        return biased if added is None else biased + added[place % added.shape[0], 0, row, column]

    attended = flex_attention(query, key, value, score_mod=modify, scale=scale)
    assert isinstance(attended, Tensor)
    return reverse(attended, qkv, window, shift)


# chosen blocks


def attend_to_all(*arguments: Any) -> Tensor:
    """Full attention."""
    inputs = SparseInputs(*arguments)
    return F.scaled_dot_product_attention(
        inputs.query, inputs.key, inputs.value, is_causal=inputs.is_causal, scale=inputs.scale
    )


def choose_and_attend(*arguments: Any) -> Tensor:
    """Ours from queries and keys on: choose as many blocks as the lists have, then attend."""
    inputs = SparseInputs(*arguments)
    return attend_to_blocks(
        inputs.query,
        inputs.key,
        inputs.value,
        _chosen(inputs),
        is_causal=inputs.is_causal,
        scale=inputs.scale,
    )


def with_choice(attend: Function) -> Function:
    """FlexAttention from queries and keys on: blocks chosen as ours, and its own mask of them."""

    def run(*arguments: Any) -> Tensor:
        inputs = SparseInputs(*arguments)
        blocks = _mask_of(_chosen(inputs), inputs.key, is_causal=inputs.is_causal)
        return attend(inputs.query, inputs.key, inputs.value, blocks, inputs.scale)

    return run


def _chosen(inputs: SparseInputs) -> Tensor:
    return choose_blocks(
        inputs.query, inputs.key, keep=inputs.kept.shape[-1], is_causal=inputs.is_causal
    )


def attend_by_flex(
    query: Tensor, key: Tensor, value: Tensor, blocks: BlockMask, scale: float
) -> Tensor:
    """FlexAttention over the blocks of a mask."""
    tiles: Any = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK}
    output = flex_attention(query, key, value, block_mask=blocks, scale=scale, kernel_options=tiles)
    assert isinstance(output, Tensor)
    return output


def for_flex(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operator's inputs, with the lists as FlexAttention's mask."""
    inputs = SparseInputs(*arguments)
    blocks = _mask_of(inputs.kept, inputs.key, is_causal=inputs.is_causal)
    return inputs.query, inputs.key, inputs.value, blocks, inputs.scale


def _mask_of(kept: Tensor, key: Tensor, *, is_causal: bool) -> BlockMask:
    """FlexAttention's mask of the same blocks, of which those on the diagonal are partial."""
    count = blocks_of(key.shape[2])
    own = torch.arange(kept.shape[2], device=kept.device, dtype=torch.int32)[:, None]
    is_full = (kept >= 0) & (kept != own) if is_causal else kept >= 0
    full = torch.where(is_full, kept, count).sort(-1).values
    full = F.pad(full.masked_fill(full == count, 0), (0, count - kept.shape[-1]))
    is_partial = ((kept == own) & is_causal).any(-1)
    partial_blocks = F.pad(own.expand(*kept.shape[:3], 1), (0, count - 1))
    return BlockMask.from_kv_blocks(
        is_partial.int(),
        partial_blocks.contiguous(),
        is_full.sum(-1, dtype=torch.int32),
        full.contiguous(),
        BLOCK_SIZE=BLOCK,
        mask_mod=_is_before if is_causal else None,
        seq_lengths=(kept.shape[2] * BLOCK, count * BLOCK),
        compute_q_blocks=False,
    )


def _is_before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
