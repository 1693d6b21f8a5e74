"""The launch of a kernel: its entry, grid, block, shared memory and arguments, and what is
declined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import KernelError

Argument = Tensor | np.int32 | np.float32 | None
Size = tuple[int, int, int]

TYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
MOST_ACROSS = 65_535  # blocks along the second and third axis of a grid
ALIGNMENT = 16  # bytes, of tensors that are read in whole vectors


class DeclinedError(KernelError):
    """A kernel does not take these inputs; torch computes them instead."""


@dataclass(frozen=True)
class Launch:
    """One call of one kernel. Tensors are passed by address, numbers as the 32 bits that the kernel
    declares.
    """

    kernel: str  # the stem of its source
    entry: str  # the template with its arguments: depthwise<bfloat16, 3, 1, RELU, 8, 8, 64, 1>
    grid: Size
    block: Size
    shared_bytes: int
    arguments: tuple[Argument, ...]

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return next(one.device for one in self.arguments if isinstance(one, Tensor))


def type_of(*tensors: Tensor | None) -> str:
    """The CUDA name of the dtype that all tensors share; other dtypes and mixtures are declined."""
    dtypes = {one.dtype for one in tensors if one is not None}
    if len(dtypes) > 1:
        raise DeclinedError(
            f"it takes one dtype for all, not {_listed(str(one) for one in dtypes)}"
        )
    (dtype,) = dtypes
    if dtype not in TYPES:
        raise DeclinedError(f"it takes {_listed(str(one) for one in TYPES)}, not {dtype}")
    return TYPES[dtype]


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its first element is not aligned to 16 bytes."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def one_of(name: str, value: int, choices: tuple[int, ...]) -> None:
    """Decline a value that the kernel was not written for."""
    if value not in choices:
        raise DeclinedError(f"it takes {name} {_listed(str(one) for one in choices)}, not {value}")


def grid_of(x: int, y: int, z: int) -> Size:
    """A grid of blocks, declined where the hardware cannot count them along an axis."""
    if y > MOST_ACROSS or z > MOST_ACROSS:
        raise DeclinedError(
            f"a grid of {x} × {y} × {z} blocks is past {MOST_ACROSS:,} along an axis"
        )
    return countable(x), y, z


def countable(count: int) -> int:
    """A number of blocks or rows, declined where 32 bits do not hold it."""
    if count >= 1 << 31:
        raise DeclinedError(f"{count:,} parts are more than 32 bits can count")
    return count


def _listed(names: Iterator[str]) -> str:
    return ", ".join(sorted(names))
