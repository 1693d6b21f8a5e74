"""`Kernel`: a CUDA kernel as a torch operator, a composition in torch, and a launch.

What is the same for every kernel is here: the schema from the operator's arguments, the check of
their devices, the choice of the tile, the name of the entry, and how arguments are passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import torch
from torch import Tensor

from ..errors import KernelError
from .tiles import NO_TILES, Tile, Tiles, measured_tile

Argument = Tensor | np.int32 | np.float32 | None
Size = tuple[int, int, int]

BUDGETED_BY = "13.5"  # the NVRTC version of the budgets: others may need a few instructions more
TYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
MAX_GRID_YZ = 65_535  # blocks along the second and third axis of a grid
MAX_COUNT = (1 << 31) - 1  # of blocks or rows, which are 32-bit integers
ALIGNMENT = 16  # bytes, of tensors that are read by vector loads
SCHEMA_TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    tuple[int, int]: "int[2]",
    torch.dtype: "ScalarType",
}


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


class Cut(NamedTuple):
    """How a kernel divides its work, and what it passes to its source."""

    template: tuple[str | int, ...]  # the template's arguments before the tile
    grid: Size
    threads: int  # of a block
    shared_bytes: int
    tensors: tuple[Tensor | None, ...]  # read, in the order of the source's arguments
    numbers: tuple[int | float | np.float32, ...]  # after the output


class Budget(NamedTuple):
    """The most that one entry may use, compiled for sm_90a; spills are never allowed."""

    registers: int
    instructions: int


@dataclass(frozen=True)
class Kernel:
    """A CUDA kernel. The functions take `inputs`, a dataclass of the operator's arguments.

    `compute` is the composition in torch. `allocate` checks that the inputs fit together and
    allocates the output; compilers trace it for the output's shape. `cut` divides the work into
    blocks of a tile, or raises DeclinedError. `words` are the properties of the inputs that decide
    which tile is best, `default_tile` the tile of inputs for which it is not the default of all. A
    kernel on integers is not differentiable.
    """

    name: str
    inputs: type[Any]
    compute: Callable[[Any], Tensor]
    allocate: Callable[[Any], Tensor]
    cut: Callable[[Tensor, Any, Tile], Cut]
    budgets: Mapping[str, Budget]
    tiles: Tiles = NO_TILES
    words: Callable[[Any], Iterable[str]] = lambda inputs: ()
    default_tile: Callable[[Any], Tile | None] = lambda inputs: None
    is_differentiable: bool = True

    @property
    def schema(self) -> str:
        """The operator's schema: (Tensor x, Tensor? bias, int stride) -> Tensor."""
        types = get_type_hints(self.inputs)
        arguments = (f"{SCHEMA_TYPES[types[name]]} {name}" for name in self._names())
        return f"({', '.join(arguments)}) -> Tensor"

    def compose(self, *arguments: Any) -> Tensor:
        """The composition in torch: reference, fallback, and recomputed by a backward pass."""
        return self.compute(self.inputs(*arguments))

    def empty(self, *arguments: Any) -> Tensor:
        """Check that the inputs are on one device and fit together, and allocate the output."""
        if len({value.device for value in arguments if isinstance(value, Tensor)}) > 1:
            raise KernelError(self._device_mismatch(arguments))
        return self.allocate(self.inputs(*arguments))

    def problem(self, *arguments: Any) -> str:
        """What decides which tile is best, in a line."""
        return self._problem(self.inputs(*arguments))

    def plan(self, out: Tensor, *arguments: Any, tile: Tile | None = None) -> Launch:
        """The launch that fills this output, by the requested tile, else the one measured to be
        best for such inputs, else the default; raises DeclinedError.
        """
        inputs = self.inputs(*arguments)
        if tile is None:
            measured = measured_tile(self.name, self.tiles, self._problem(inputs), out.device)
            tile = measured or self.default_tile(inputs) or self.tiles.default
        else:
            self.tiles.check(self.name, tile)
        cut = self.cut(out, inputs, tile)
        template = ", ".join(map(str, (*cut.template, *self.tiles.numbers(tile))))
        return Launch(
            kernel=self.name,
            entry=f"{self.name}<{template}>",
            grid=_checked_grid(cut.grid),
            block=(cut.threads, 1, 1),
            shared_bytes=cut.shared_bytes,
            arguments=(
                *(None if tensor is None else _readable(tensor) for tensor in cut.tensors),
                out,
                *map(_number, cut.numbers),
            ),
        )

    def _problem(self, inputs: Any) -> str:
        return " ".join(word for word in self.words(inputs) if word)

    def _names(self) -> list[str]:
        return [field.name for field in fields(self.inputs)]

    def _device_mismatch(self, arguments: tuple[Any, ...]) -> str:
        by_device: dict[torch.device, list[str]] = {}
        for name, value in zip(self._names(), arguments, strict=False):
            if isinstance(value, Tensor):
                by_device.setdefault(value.device, []).append(name)
        found = " and ".join(f"{', '.join(names)} on {where}" for where, names in by_device.items())
        return (
            f"{self.name} takes all its tensors on one device, not {found}; move them to one with "
            ".to(device)."
        )


def type_of(*tensors: Tensor | None) -> str:
    """The CUDA name of the dtype that all tensors share; other dtypes and mixtures are declined."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(dtypes) > 1:
        raise DeclinedError(
            f"it takes tensors of one dtype, not {_listed(sorted(map(str, dtypes)))}"
        )
    (dtype,) = dtypes
    if dtype not in TYPES:
        raise DeclinedError(f"it takes {_listed(TYPES)}, not {dtype}")
    return TYPES[dtype]


def require_one_of(name: str, value: int, choices: tuple[int, ...]) -> None:
    """Decline a value that the kernel does not support."""
    if value not in choices:
        raise DeclinedError(f"it takes {name} {_listed(choices)}, not {value}")


def require_multiples(name: str, unit: int, *widths: int) -> None:
    """Decline widths that are not whole vector loads."""
    if any(width % unit or not width for width in widths):
        raise DeclinedError(f"it takes multiples of {unit} {name}, not {_listed(widths)}")


def require_shape(kernel: str, what: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise for a tensor of another shape."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise KernelError(f"{kernel} takes {what} of {tuple(shape)}, not {tuple(tensor.shape)}.")


def checked_count(count: int) -> int:
    """A number of blocks or rows, declined if it does not fit 32 bits."""
    if count > MAX_COUNT:
        raise DeclinedError(f"{count:,} blocks or rows do not fit a 32-bit integer")
    return count


def rounded_size(count: int) -> str:
    """A size rounded up to a power of two, 2^18, since its exact value matters little."""
    return f"2^{max(0, count - 1).bit_length()}"


def _checked_grid(grid: Size) -> Size:
    x, y, z = grid
    if max(y, z) > MAX_GRID_YZ:
        raise DeclinedError(
            f"a grid of {x} × {y} × {z} blocks exceeds {MAX_GRID_YZ:,} along an axis"
        )
    return checked_count(x), y, z


def _readable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if it is not contiguous or its first element not aligned."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _number(number: int | float | np.float32) -> np.int32 | np.float32:
    return np.int32(checked_count(number)) if isinstance(number, int) else np.float32(number)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
