"""Layers that take the same at the same widths, and a call of one with any number of channels."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..groups.product import Product, Row, Shape

# of one side: a staircase has one step for each 8 or 16 channels of a layer that is not very wide
MOST_WIDTHS = 12


class Room(NamedTuple):
    """What all calls of a family are given parts of."""

    values: Tensor
    weights: Tensor
    biases: Tensor


class Family(NamedTuple):
    """The timed part of a product: its shape, and the channel ids of its input and output channels;
    None for those in pairs.
    """

    shape: Shape
    reads: Row | None
    makes: Row
    beside: Row  # a product's rows: its time goes with them
    fixed_reads: int = 1  # of each group of a convolution whose groups go

    @property
    def likeness(self) -> str:
        """What a person calls it, and what tells it from others."""
        shape = self.shape
        parts = [shape.kind, f"{shape.given[0]} rows"]
        if shape.kernel:
            parts = [f"{shape.kind} {_by(shape.kernel)}", *self._grouping]
            parts += [f"stride {_one(shape.stride)}"] if set(shape.stride) != {1} else []
            parts += [f"padding {_one(shape.padding)}"] if any(shape.padding) else []
            parts += [f"dilation {_one(shape.dilation)}"] if set(shape.dilation) != {1} else []
            parts += (
                [f"output padding {_one(shape.output_padding)}"]
                if any(shape.output_padding)
                else []
            )
            parts += [f"{shape.given[0]} × {_by(shape.given[1:])}"]
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

    def room(self) -> Room:
        """Values and weights enough for the widest, which all calls share."""
        reads, makes = full_width(self.reads), full_width(self.makes)
        groups, wide = self._given(reads, makes)
        values = self.shape.given[0] * wide * prod(self.shape.given[1:])
        weights = makes * max(1, wide // groups) * prod(self.shape.kernel)
        return Room(*(_drawn(size, self.shape) for size in (values, weights, makes)))

    def call(self, room: Room, reads: int, makes: int) -> Callable[[], Any]:
        """The operator with so many channels."""
        shape = self.shape
        groups, wide = self._given(reads, makes)
        bias = room.biases[:makes] if shape.has_bias else None
        values = _shaped(
            room.values, (shape.given[0], wide, *shape.given[1:]), is_last=shape.is_channels_last
        )
        if shape.kind == "product":
            weight = _shaped(room.weights, (makes, wide))
            return lambda: functional.linear(values, weight, bias)
        is_transposed = shape.kind == "transposed convolution"
        sides = (wide, makes) if is_transposed else (makes, wide // groups)
        weight = _shaped(room.weights, (*sides, *shape.kernel), is_last=shape.is_channels_last)
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
        """The widths of both sides to be measured, at most so many each."""
        reads = (1,) if self.reads is None else spaced(full_width(self.reads), most)
        return reads, spaced(
            full_width(self.makes),
            most,
            self.shape.groups if self.reads is not None else self._multiplied,
        )

    @property
    def _multiplied(self) -> int:
        """How many channels each group makes, where groups go."""
        return full_width(self.makes) // self.shape.groups

    def _given(self, reads: int, makes: int) -> tuple[int, int]:
        """How many groups there are, and how many channels are given."""
        if self.reads is None:
            groups = makes // self._multiplied
            return groups, groups * self.fixed_reads
        return self.shape.groups, reads * self.shape.groups


def family_of(product: Product) -> Family | None:
    """The family of a product; None for those that are not timed by themselves, such as
    attention.
    """
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
    """Rising multiples of a power of two of units, no more than so many, and the whole width
    last.
    """
    step = 1
    while -(-(full // unit) // step) > most:
        step *= 2
    return (*range(unit * step, full, unit * step), full)


def full_width(row: Row | None) -> int:
    """How many channels a side has."""
    return 1 if row is None else row if isinstance(row, int) else len(row)


def _drawn(size: int, shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=generator).to(shape.device, shape.dtype)


def _shaped(room: Tensor, sizes: tuple[int, ...], *, is_last: bool = False) -> Tensor:
    """The first values as a tensor of these sizes, its channels last in memory where that is asked
    for.
    """
    if is_last:
        return room[: prod(sizes)].view(sizes[0], *sizes[2:], sizes[1]).movedim(-1, 1)
    return room[: prod(sizes)].view(sizes)


def _one(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(set(sizes)) == 1 else _by(sizes)


def _by(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))
