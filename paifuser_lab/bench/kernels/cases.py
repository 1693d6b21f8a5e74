"""Each kernel at the shapes of real models, and at small ones for the emulator; and what the tests
use too: a kernel's random inputs, its exact output, and the error that it may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...errors import MeasureError
from ...kernels import KERNELS, choose_blocks
from ...kernels.block_gather import BLOCK
from ...kernels.kernel import Kernel
from ...kernels.quantized import weight_sums
from . import peers
from .peers import Peer
from .timing import sets_needed

Inputs = tuple[Any, ...]
Size = tuple[int, int, int, int]

CPU, META = torch.device("cpu"), torch.device("meta")
# what fp32 may add, in steps of a quantized value: far more than it adds to some hundred steps
NEAR_HALF = 0.001
UNWRITTEN = 99
ZEROS = {torch.uint8: 131, torch.int8: -5}
POWERS = [2.0**power for power in range(-9, -4)]


@dataclass(frozen=True)
class Subject:
    """A kernel with its inputs and peers; of attention, the values averaged and the operations."""

    kernel: Kernel
    make: Callable[..., Inputs]
    peers: Callable[[], tuple[Peer, ...]]
    averaged: Callable[[Any], Tensor] | None = None
    products: Callable[[Any], int] | None = None

    def operations(self, inputs: Inputs) -> int:
        """The operations of one call."""
        arguments = self.kernel.inputs(*inputs)
        if self.products is not None:
            return self.products(arguments)
        return 2 * self.kernel.empty(*inputs).numel() * int(arguments.weight[0].numel())

    def allowed(self, inputs: Inputs, expected: Tensor) -> Tensor:
        """The error that each output may have.

        A mean, by weights rounded to 16 bits: about a unit of the largest value. A sum, rounded
        once: half a unit in the last place. A quantized sum: none, or a step where it is midway.
        """
        arguments = self.kernel.inputs(*inputs)
        if self.averaged is not None:
            values = self.averaged(arguments)
            return values.abs().max().double() * (1.1 * torch.finfo(values.dtype).eps)
        dtype = self.kernel.empty(*inputs).dtype
        if not dtype.is_floating_point:
            floats = replace(arguments, dtype=torch.float64)
            steps = exact(self.kernel, tuple(vars(floats).values())) / arguments.out_scale
            is_midway: Tensor = (steps - steps.floor() - 0.5).abs() < NEAR_HALF
            return is_midway.double() / 2 + 0.5
        units = 2.0 if dtype == torch.float32 else 0.51
        return expected.abs() * (units * torch.finfo(dtype).eps) + 1e-4


@dataclass(frozen=True)
class Case:
    """A kernel at one shape, by the options of its inputs."""

    subject: Subject
    name: str
    options: Mapping[str, Any]

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.subject.kernel

    @property
    def operations(self) -> int:
        """The operations of one call."""
        return self.subject.operations(self.make(META))

    def make(self, device: torch.device) -> Inputs:
        """Random inputs."""
        return self.subject.make(device, **self.options)

    def sets(self, device: torch.device, cache_bytes: int) -> list[Inputs]:
        """As many random inputs as exceed the cache."""
        inputs = self.make(device)
        count = sets_needed(floor_bytes(inputs, self.kernel.empty(*inputs)), cache_bytes)
        return [inputs, *(self.make(device) for _ in range(count - 1))]


def cases(*, is_small: bool = False) -> tuple[Case, ...]:
    """All cases, real or small."""
    return tuple(
        Case(SUBJECTS[kernel], name, real | small if is_small else real)
        for kernel, by_name in _TABLE.items()
        for name, (real, small) in by_name.items()
    )


def named(known: Sequence[Case], words: Sequence[str]) -> tuple[Case, ...]:
    """The cases with one of these words in the name of the kernel or the case; all without any."""
    names = {f"{case.kernel.name} {case.name}": case for case in known}
    chosen = [case for name, case in names.items() if any(word in name for word in words)]
    if words and not chosen:
        there = ", ".join(case.name for case in known)
        raise MeasureError(f"No case is called {' or '.join(words)}; there are {there}.")
    return tuple(chosen if words else known)


def floor_bytes(inputs: Inputs, out: Tensor) -> int:
    """The least bytes that cross the memory: each input read once, the output written once."""
    return sum(value.nbytes for value in (*inputs, out) if isinstance(value, Tensor))


# inputs


def windows(
    device: torch.device = CPU,
    *,
    grid: tuple[int, int, int] = (1, 2, 2),
    heads: int = 2,
    window: int = 7,
    size: int = 32,
    shift: tuple[int, int] = (3, 3),
    dtype: torch.dtype = torch.bfloat16,
) -> Inputs:
    """Attention in a grid of windows: (batch, down, across)."""
    batch, down, across = grid
    shape = (batch, down * window, across * window, 3, heads, size)
    bias = torch.randn(heads, (2 * window - 1) ** 2, device=device)
    qkv = torch.randn(shape, device=device, dtype=dtype)
    return qkv, bias, window, list(shift), size**-0.5


def images(
    device: torch.device = CPU,
    *,
    shape: Size = (1, 72, 11, 13),
    side: int = 3,
    stride: int = 1,
    padding: int | None = None,
    activation: str = "none",
    has_bias: bool = True,
    has_residual: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> Inputs:
    """A depthwise convolution of images, channels last."""
    channels = shape[1]
    x = _channels_last(torch.randn(shape, device=device, dtype=dtype))
    weight = torch.randn(channels, 1, side, side, device=device, dtype=dtype) / side
    bias = torch.randn(channels, device=device, dtype=dtype) if has_bias else None
    rest = (stride, side // 2 if padding is None else padding, activation)
    out = KERNELS["depthwise"].empty(x, weight, bias, None, *rest)
    return x, weight, bias, torch.randn_like(out) if has_residual else None, *rest


def rows(
    device: torch.device = CPU,
    *,
    shape: tuple[int, ...] = (150, 72),
    columns: int = 72,
    activation: str = "none",
    has_bias: bool = True,
    has_residual: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> Inputs:
    """A linear layer."""
    x = torch.randn(shape, device=device, dtype=dtype)
    weight = torch.randn(columns, shape[-1], device=device, dtype=dtype) / shape[-1] ** 0.5
    bias = torch.randn(columns, device=device, dtype=dtype) if has_bias else None
    residual = torch.randn(*shape[:-1], columns, device=device, dtype=dtype)
    return x, weight, bias, residual if has_residual else None, activation


def int8_images(
    device: torch.device = CPU,
    *,
    shape: Size = (1, 80, 11, 13),
    side: int = 3,
    stride: int = 1,
    padding: int | None = None,
    dtype: torch.dtype = torch.uint8,
    **options: Any,
) -> Inputs:
    """A depthwise convolution of quantized images, channels last."""
    x = _channels_last(random_int8(dtype, *shape, device=device))
    weight = random_int8(torch.int8, shape[1], 1, side, side, device=device)
    rest = (stride, side // 2 if padding is None else padding)
    return _quantized("depthwise_int8", x, weight, rest, **options)


def int8_rows(
    device: torch.device = CPU,
    *,
    shape: tuple[int, ...] = (150, 80),
    columns: int = 80,
    dtype: torch.dtype = torch.uint8,
    **options: Any,
) -> Inputs:
    """A linear layer of quantized rows."""
    x = random_int8(dtype, *shape, device=device)
    weight = random_int8(torch.int8, columns, shape[-1], device=device)
    return _quantized("pointwise_int8", x, weight, (), **options)


def tokens(device: torch.device, *, shape: Size, density: float, is_causal: bool = False) -> Inputs:
    """Attention to the blocks that are chosen."""
    query, key, value = torch.randn((3, *shape), device=device, dtype=torch.bfloat16)
    blocks = choose_blocks(query, key, density=density, is_causal=is_causal)
    return query, key, value, blocks, None, is_causal, shape[-1] ** -0.5


def random_int8(dtype: torch.dtype, *shape: int, device: torch.device = CPU) -> Tensor:
    """Random quantized values of a type's whole range."""
    ends = torch.iinfo(dtype)
    return torch.randint(ends.min, ends.max + 1, shape, dtype=dtype, device=device)


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _quantized(
    name: str,
    x: Tensor,
    weight: Tensor,
    rest: tuple[int, ...],
    *,
    into: torch.dtype | None = None,
    activation: str = "none",
    has_bias: bool = True,
    has_residual: bool = False,
    has_zero: bool = True,
    is_exact: bool = False,
) -> Inputs:
    """The arguments of an int8 operator; where fp32 is exact, scales and bias have few digits."""
    channels, device = len(weight), x.device
    scales = (torch.rand(channels, device=device) + 0.1) * 1e-3 / weight[0].numel() ** 0.5
    bias = torch.randn(channels, device=device)
    zero, residual_zero, out_zero = (ZEROS[x.dtype], 7, 3) if has_zero else (0, 0, 0)
    residual_scale, out_scale = (2.0**-6, 2.0**-4) if is_exact else (0.013, 0.0371)
    if is_exact:
        scales = torch.tensor(POWERS)[torch.randint(len(POWERS), (channels,))]
        bias = torch.randint(-64, 65, (channels,)) / 32
    sums = weight_sums(weight) if has_zero else None
    first = (x, zero, weight, scales, sums, bias if has_bias else None)
    last = (residual_scale, residual_zero, out_scale, out_zero, into or x.dtype, activation, *rest)
    shape = KERNELS[name].empty(*first, None, *last).shape
    return *first, random_int8(x.dtype, *shape, device=device) if has_residual else None, *last


# outputs


def unwritten(kernel: Kernel, inputs: Inputs) -> Tensor:
    """Memory for the output, full of NaN, or of 99 for integers, until the kernel writes it."""
    out = kernel.empty(*inputs)
    return out.fill_(float("nan") if out.is_floating_point() else UNWRITTEN)


def exact(kernel: Kernel, inputs: Inputs) -> Tensor:
    """A kernel's expected output, composed in float64; a float one is not rounded at the end."""
    return kernel.compose(*map(_as_double, inputs))


def _as_double(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def error_of(output: Tensor, expected: Tensor, allowed: Tensor | float) -> float:
    """The largest error relative to the allowed one there; infinite if the output has a NaN."""
    ratio = ((output.double() - expected).abs() / allowed).max().item() if output.numel() else 0.0
    return ratio if ratio == ratio else float("inf")


# the table


def _in_windows(inputs: Any) -> int:
    return 4 * int(inputs.qkv.numel()) // 3 * int(inputs.window) ** 2


def _in_blocks(inputs: Any) -> int:
    batch, heads, down, keep = inputs.kept.shape
    rows = range(down)
    blocks = sum(min(keep, row + 1) for row in rows) if inputs.is_causal else keep * down
    return int(4 * batch * heads * blocks * BLOCK**2 * inputs.query.shape[-1])


def _values(inputs: Any) -> Tensor:
    values: Tensor = inputs.qkv[..., 2, :, :]
    return values


SUBJECTS = {
    "window_attention": Subject(
        KERNELS["window_attention"], windows, peers.of_windows, _values, _in_windows
    ),
    "depthwise": Subject(KERNELS["depthwise"], images, peers.of_depthwise),
    "pointwise": Subject(KERNELS["pointwise"], rows, peers.of_pointwise),
    "depthwise_int8": Subject(KERNELS["depthwise_int8"], int8_images, peers.of_depthwise_int8),
    "pointwise_int8": Subject(KERNELS["pointwise_int8"], int8_rows, peers.of_pointwise_int8),
    "block_sparse_attention": Subject(
        KERNELS["block_sparse_attention"],
        tokens,
        peers.of_block_sparse,
        lambda inputs: inputs.value,
        _in_blocks,
    ),
}

_STAGE_1 = {"grid": (32, 8, 8), "heads": 3}
_ONE_HEAD = {"grid": (1, 2, 2), "heads": 1}
_IMAGES, _ONE_IMAGE = {"shape": (64, 96, 56, 56)}, {"shape": (1, 96, 14, 14)}
_STRIDED = {"side": 5, "stride": 2, "activation": "silu"}
_WIDE = {"shape": (64, 56, 56, 64), "columns": 256, "activation": "relu", "has_residual": True}
_SIGNED = {"dtype": torch.int8}

# by kernel and name: the options of real inputs, and those that differ for small ones
_TABLE: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "window_attention": {
        "Swin-T stage 1": (_STAGE_1 | {"shift": (0, 0)}, _ONE_HEAD),
        "Swin-T stage 1, shifted": (_STAGE_1, _ONE_HEAD),
        "Swin-T stage 3, shifted": ({"grid": (32, 2, 2), "heads": 12}, _ONE_HEAD),
    },
    "depthwise": {
        "MobileNetV2 3×3": (_IMAGES | {"activation": "relu6"}, _ONE_IMAGE),
        "EfficientNet 5×5, stride 2": (
            _STRIDED | {"shape": (64, 240, 28, 28)},
            {"shape": (1, 72, 13, 13)},
        ),
        "ConvNeXt-T 7×7": (_IMAGES | {"side": 7}, _ONE_IMAGE),
    },
    "pointwise": {
        "ResNet-50 64 → 256, residual": (_WIDE, {"shape": (1, 14, 14, 64), "columns": 136}),
        "MobileNetV2 24 → 144": (
            {"shape": (64, 56, 56, 24), "columns": 144, "activation": "relu6"},
            {"shape": (1, 14, 14, 24), "columns": 72},
        ),
        "ViT-B 768 → 3072": (
            {"shape": (64, 197, 768), "columns": 3072, "activation": "gelu"},
            {"shape": (1, 19, 96), "columns": 200},
        ),
    },
    "depthwise_int8": {
        "MobileNetV2 side of 3, int8": (_IMAGES | _SIGNED | {"activation": "relu6"}, _ONE_IMAGE),
        "ConvNeXt-T side of 7, int8": (_IMAGES | _SIGNED | {"side": 7}, _ONE_IMAGE),
    },
    "pointwise_int8": {
        "ResNet-50 64 → 256, residual, int8": (
            _WIDE | _SIGNED,
            {"shape": (1, 14, 14, 64), "columns": 144},
        ),
        "MobileNetV2 32 → 192, int8": (
            _SIGNED | {"shape": (64, 28, 28, 32), "columns": 192, "activation": "relu6"},
            {"shape": (1, 14, 14, 32), "columns": 80},
        ),
    },
    "block_sparse_attention": {
        "8k tokens, a quarter, causal": (
            {"shape": (1, 16, 8192, 128), "density": 0.25, "is_causal": True},
            {"shape": (1, 1, 256, 128)},
        ),
        "16k tokens, a tenth": (
            {"shape": (1, 16, 16_384, 64), "density": 0.1},
            {"shape": (1, 1, 320, 64), "density": 0.4},
        ),
    },
}
