"""Which tile a launch is cut by: the one that is asked for, else the one measured to be best, else
the kernel's default.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..errors import KernelError
from .tiles import Tile, Tiles
from .tuned import tile_for


def cut_by(
    kernel: str,
    tiles: Tiles,
    asked: Tile | None,
    problem: str,
    device: torch.device,
    default: Tile | None = None,
) -> Tile:
    """The tile for a problem; one that the source does not take is refused."""
    if asked is None:
        return tile_for(kernel, problem, device) or default or tiles.default
    if asked not in tiles:
        raise KernelError(
            f"{kernel} is not cut by {_said(asked)}; it takes {_said_choices(tiles)}, where they "
            "go together."
        )
    return asked


def about(count: int) -> str:
    """A size that decides little in itself, as the power of two that holds it: 2^18."""
    return f"2^{max(0, count - 1).bit_length()}"


def told(*words: str | None) -> str:
    """A problem in words, those left out that do not apply."""
    return " ".join(word for word in words if word)


def _said(tile: Tile) -> str:
    return ", ".join(f"{name}={number}" for name, number in tile.items()) or "nothing"


def _said_choices(tiles: Tiles) -> str:
    return ", ".join(f"{name} of {_or(numbers)}" for name, numbers in tiles.choices.items())


def _or(numbers: Iterable[int]) -> str:
    *most, last = (str(number) for number in numbers)
    return f"{', '.join(most)} or {last}" if most else last
