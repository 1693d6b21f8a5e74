"""The launch of a kernel: entry, grid, block, shared memory, arguments, and what is declined."""

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
MAX_GRID_YZ = 65_535  # blocks along the second and third axis of a grid
ALIGNMENT = 16  # bytes, of tensors that are read by vector loads


class DeclinedError(KernelError):
    """A kernel does not support these inputs; torch computes them instead."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: tensors are passed by address, numbers as 32 bits."""

    kernel: str  # the stem of its source
    entry: str  # the template with its arguments: depthwise<bfloat16, 3, 1, RELU, 8, 8, 64, 1>
    grid: Size
    block: Size
    shared_bytes: int
    arguments: tuple[Argument, ...]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return next(value.device for value in self.arguments if isinstance(value, Tensor))


def type_of(*tensors: Tensor | None) -> str:
    """The CUDA name of the dtype that all tensors share; other dtypes and mixtures are declined."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(dtypes) > 1:
        raise DeclinedError(
            f"it takes tensors of one dtype, not {_listed(str(dtype) for dtype in dtypes)}"
        )
    (dtype,) = dtypes
    if dtype not in TYPES:
        raise DeclinedError(f"it takes {_listed(str(known) for known in TYPES)}, not {dtype}")
    return TYPES[dtype]


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if its first element is not aligned to 16 bytes."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def require_one_of(name: str, value: int, choices: tuple[int, ...]) -> None:
    """Decline a value that the kernel does not support."""
    if value not in choices:
        supported = _listed(str(choice) for choice in choices)
        raise DeclinedError(f"it takes {name} {supported}, not {value}")


def grid_of(x: int, y: int, z: int) -> Size:
    """A grid of blocks, declined if it exceeds the hardware's limit along an axis."""
    if y > MAX_GRID_YZ or z > MAX_GRID_YZ:
        raise DeclinedError(
            f"a grid of {x} × {y} × {z} blocks exceeds {MAX_GRID_YZ:,} along an axis"
        )
    return checked_count(x), y, z


def checked_count(count: int) -> int:
    """A number of blocks or rows, declined if it does not fit 32 bits."""
    if count >= 1 << 31:
        raise DeclinedError(f"{count:,} blocks or rows do not fit a 32-bit integer")
    return count


def _listed(names: Iterator[str]) -> str:
    return ", ".join(sorted(names))
