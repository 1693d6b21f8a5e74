"""Which tile was measured to be best for a problem on a device: a look into memory, but for the
first time; nothing waits for a GPU.
"""

from __future__ import annotations

from functools import cache

import torch

from .tiles import Tile
from .tuning.store import Measured, measured_on


def tile_for(kernel_name: str, problem: str, device: torch.device) -> Tile | None:
    """The tile that was measured to be best, or None where nothing was measured, or the source no
    longer takes it.
    """
    if device.type != "cuda":
        return None
    return _tile(
        kernel_name,
        problem,
        _name(torch.cuda.current_device() if device.index is None else device.index),
    )


def forget() -> None:
    """Look into the files again the next time: something was measured."""
    _tile.cache_clear()
    _known.cache_clear()


@cache
def _tile(kernel_name: str, problem: str, device_name: str) -> Tile | None:
    from .registry import KERNELS  # which imports the kernels, which import this

    best = _known(device_name).kernels.get(kernel_name, {}).get(problem)
    if best is None or kernel_name not in KERNELS:
        return None
    return best.tile if best.tile in KERNELS[kernel_name].tiles else None


@cache
def _known(device_name: str) -> Measured:
    return measured_on(device_name)


@cache
def _name(index: int) -> str:
    return torch.cuda.get_device_name(index)
