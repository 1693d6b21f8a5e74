"""Layers that take equally long at equal widths, and a call of one with any number of channels."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..groups.label_space import Product, Row, Shape

# per side: a staircase has a step every 8 or 16 channels unless the layer is very wide
MOST_WIDTHS = 12


class Buffers(NamedTuple):
    """Buffers that all calls of a family use parts of."""

    values: Tensor
    weights: Tensor
    biases: Tensor


class Family(NamedTuple):
    """The timed part of a product: its shape, and the channel ids of its input and output channels;
    `reads` is None where whole groups of a convolution are removed.
    """

    shape: Shape
    reads: Row | None
    makes: Row
    beside: Row  # a product's rows, which its time is proportional to
    fixed_reads: int = 1  # input channels per group, of a convolution whose groups are removed

    @property
    def likeness(self) -> str:
        """A readable name that is unique to the family."""
        shape = self.shape
        parts = [shape.kind, f"{shape.input_sizes[0]} rows"]
        if shape.kernel:
            parts = [f"{shape.kind} {_by(shape.kernel)}", *self._grouping]
            parts += [f"stride {_short(shape.stride)}"] if set(shape.stride) != {1} else []
            parts += [f"padding {_short(shape.padding)}"] if any(shape.padding) else []
            parts += [f"dilation {_short(shape.dilation)}"] if set(shape.dilation) != {1} else []
            parts += (
                [f"output padding {_short(shape.output_padding)}"]
                if any(shape.output_padding)
                else []
            )
            parts += [f"{shape.input_sizes[0]} × {_by(shape.input_sizes[1:])}"]
        parts += ["bias"] if shape.has_bias else []
        parts += [str(shape.dtype).removeprefix("torch.")]
        parts += ["channels last"] if shape.is_channels_last else []
        return " · ".join(parts + ([shape.device] if shape.device != "cpu" else []))

    @property
    def _grouping(self) -> list[str]:
        if self.reads is not None:
            return [f"in {self.shape.groups} groups"] if self.shape.groups > 1 else []
        multiplied = f", {self._multiplied} made of each" if self._multiplied > 1 else ""
        return [
            f"depthwise{multiplied}"
            if self.fixed_reads == 1
            else f"in groups of {self.fixed_reads}{multiplied}"
        ]

    def buffers(self) -> Buffers:
        """Values and weights large enough for the widest call, shared by all calls."""
        reads, makes = full_width(self.reads), full_width(self.makes)
        groups, wide = self._groups_and_inputs(reads, makes)
        values = self.shape.input_sizes[0] * wide * prod(self.shape.input_sizes[1:])
        weights = makes * max(1, wide // groups) * prod(self.shape.kernel)
        return Buffers(*(_random(size, self.shape) for size in (values, weights, makes)))

    def call(self, buffers: Buffers, reads: int, makes: int) -> Callable[[], Any]:
        """A call of the operator with these numbers of channels."""
        shape = self.shape
        groups, wide = self._groups_and_inputs(reads, makes)
        bias = buffers.biases[:makes] if shape.has_bias else None
        values = _shaped(
            buffers.values,
            (shape.input_sizes[0], wide, *shape.input_sizes[1:]),
            is_last=shape.is_channels_last,
        )
        if shape.kind == "product":
            weight = _shaped(buffers.weights, (makes, wide))
            return lambda: functional.linear(values, weight, bias)
        is_transposed = shape.kind == "transposed convolution"
        sides = (wide, makes) if is_transposed else (makes, wide // groups)
        weight = _shaped(buffers.weights, (*sides, *shape.kernel), is_last=shape.is_channels_last)
        options = (
            shape.stride,
            shape.padding,
            shape.dilation,
            is_transposed,
            shape.output_padding,
            groups,
        )
        return lambda: torch.convolution(values, weight, bias, *options)

    def grids(self, most: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of both sides to measure, at most `most` each."""
        reads = (1,) if self.reads is None else spaced(full_width(self.reads), most)
        return reads, spaced(
            full_width(self.makes),
            most,
            self.shape.groups if self.reads is not None else self._multiplied,
        )

    @property
    def _multiplied(self) -> int:
        """The output channels per group, where groups are removed."""
        return full_width(self.makes) // self.shape.groups

    def _groups_and_inputs(self, reads: int, makes: int) -> tuple[int, int]:
        """The number of groups and of input channels."""
        if self.reads is None:
            groups = makes // self._multiplied
            return groups, groups * self.fixed_reads
        return self.shape.groups, reads * self.shape.groups


def family_of(product: Product) -> Family | None:
    """The family of a product; None for what is not timed by itself, such as attention."""
    shape = product.shape
    if shape.kind == "product":
        rows, reads, makes = product.sizes
        return Family(shape, reads, makes, rows)
    if shape.kind == "convolution":
        makes, reads = product.sizes
        if shape.groups > 1 and isinstance(reads, int):
            return Family(shape, None, makes, 1, reads)
        return Family(shape, reads, makes, 1)
    if shape.kind == "transposed convolution" and shape.groups == 1:
        makes, reads = product.sizes
        return Family(shape, reads, makes, 1)
    return None


def spaced(full: int, most: int, unit: int = 1) -> tuple[int, ...]:
    """At most `most` rising multiples of `unit` times a power of two, the full width last."""
    step = 1
    while -(-(full // unit) // step) > most:
        step *= 2
    return (*range(unit * step, full, unit * step), full)


def full_width(row: Row | None) -> int:
    """The number of channels of a side."""
    return 1 if row is None else row if isinstance(row, int) else len(row)


def _random(size: int, shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=generator).to(shape.device, shape.dtype)


def _shaped(buffer: Tensor, sizes: tuple[int, ...], *, is_last: bool = False) -> Tensor:
    """The first values as a tensor of these sizes, with its channels last if `is_last`."""
    if is_last:
        return buffer[: prod(sizes)].view(sizes[0], *sizes[2:], sizes[1]).movedim(-1, 1)
    return buffer[: prod(sizes)].view(sizes)


def _short(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(set(sizes)) == 1 else _by(sizes)


def _by(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))
