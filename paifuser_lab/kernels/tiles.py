"""Tiles: named integers by which a kernel divides its work, the last template arguments of its
entry; and which one was measured to be best.

Measured tiles are cached after the first time: no file is read and nothing waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch

from ..errors import KernelError
from .tuning.store import measured_on

Tile = Mapping[str, int]

# Per multiprocessor, sm_90 and sm_100. Older ones have less shared memory: a valid tile may be too
# large to load there.
SHARED_BYTES = 228 << 10
RESERVED_BYTES = 1 << 10  # of those, per block
REGISTERS = 1 << 16


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, so that choices can be cached
class Tiles:
    """Every tile that a kernel's source takes, and the default where nothing was measured."""

    choices: Mapping[str, tuple[int, ...]]
    default: Tile
    is_valid: Callable[[Tile], bool] = lambda tile: True

    def __iter__(self) -> Iterator[Tile]:
        """All valid tiles, in a fixed order."""
        return filter(self.is_valid, map(self.tile, product(*self.choices.values())))

    def __contains__(self, tile: object) -> bool:
        return (
            isinstance(tile, Mapping)
            and tile.keys() == self.choices.keys()
            and all(tile[name] in numbers for name, numbers in self.choices.items())
            and self.is_valid(tile)
        )

    def numbers(self, tile: Tile) -> tuple[int, ...]:
        """A tile's numbers, in the order of the choices: the last template arguments."""
        return tuple(tile[name] for name in self.choices)

    def tile(self, numbers: Iterable[int]) -> Tile:
        """The tile of these numbers."""
        return dict(zip(self.choices, numbers, strict=True))

    def check(self, kernel: str, tile: Tile) -> None:
        """Raise for a tile that the source does not take."""
        if tile not in self:
            choices = ", ".join(
                f"{name} of {' or '.join(map(str, numbers))}"
                for name, numbers in self.choices.items()
            )
            raise KernelError(
                f"{kernel} has no tile {describe_tile(tile)}; it takes {choices}, in valid "
                "combinations."
            )


NO_TILES = Tiles(choices={}, default={})  # of a kernel without tile sizes


def describe_tile(tile: Tile) -> str:
    """A tile's names and numbers as text."""
    return ", ".join(f"{name} {number}" for name, number in tile.items()) or "without choices"


def measured_tile(kernel: str, tiles: Tiles, problem: str, device: torch.device) -> Tile | None:
    """The tile measured to be best for a problem on a device.

    None if nothing was measured, or if the kernel's source no longer takes that tile.
    """
    if device.type != "cuda" or not tiles.choices:
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return _measured_tile(kernel, tiles, problem, _device_name(index))


def forget_measured_tiles() -> None:
    """Clear the caches after a measurement, so that the next launch reads the files again."""
    _measured_tile.cache_clear()
    measured_on.cache_clear()


@cache
def _measured_tile(kernel: str, tiles: Tiles, problem: str, device_name: str) -> Tile | None:
    best = measured_on(device_name).kernels.get(kernel, {}).get(problem)
    return best.tile if best is not None and best.tile in tiles else None


@cache
def _device_name(index: int) -> str:
    return torch.cuda.get_device_name(index)
