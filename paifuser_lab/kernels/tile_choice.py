"""Which tile a launch uses: the requested one, else the one measured to be best, else the default.

Measured tiles are cached after the first time: no file is read and nothing waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from ..errors import KernelError
from .tiles import Tile, Tiles
from .tuning.store import Measured, measured_on


def choose_tile(
    kernel: str,
    tiles: Tiles,
    requested: Tile | None,
    problem: str,
    device: torch.device,
    default: Tile | None = None,
) -> Tile:
    """The tile for a problem; raises if the source does not take the requested one."""
    if requested is None:
        return measured_tile(kernel, tiles, problem, device) or default or tiles.default
    if requested not in tiles:
        raise KernelError(
            f"{kernel} has no tile {_describe(requested)}; it takes {_describe_choices(tiles)}, in "
            "valid combinations."
        )
    return requested


def measured_tile(kernel: str, tiles: Tiles, problem: str, device: torch.device) -> Tile | None:
    """The tile measured to be best for a problem on a device.

    None if nothing was measured, or if the kernel's source no longer takes that tile.
    """
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return _measured_tile(kernel, tiles, problem, _device_name(index))


def forget_measured_tiles() -> None:
    """Clear the caches after a measurement, so that the next launch reads the files again."""
    _measured_tile.cache_clear()
    _measured_on.cache_clear()


@cache
def _measured_tile(kernel: str, tiles: Tiles, problem: str, device_name: str) -> Tile | None:
    best = _measured_on(device_name).kernels.get(kernel, {}).get(problem)
    return best.tile if best is not None and best.tile in tiles else None


@cache
def _measured_on(device_name: str) -> Measured:
    return measured_on(device_name)


@cache
def _device_name(index: int) -> str:
    return torch.cuda.get_device_name(index)


def rounded_size(count: int) -> str:
    """A size rounded up to a power of two, 2^18, since its exact value matters little."""
    return f"2^{max(0, count - 1).bit_length()}"


def describe_problem(*words: str | None) -> str:
    """Join the words that describe a problem, without those that do not apply."""
    return " ".join(word for word in words if word)


def _describe(tile: Tile) -> str:
    return ", ".join(f"{name}={number}" for name, number in tile.items()) or "without choices"


def _describe_choices(tiles: Tiles) -> str:
    return ", ".join(f"{name} of {_or(numbers)}" for name, numbers in tiles.choices.items())


def _or(numbers: Iterable[int]) -> str:
    *most, last = (str(number) for number in numbers)
    return f"{', '.join(most)} or {last}" if most else last
