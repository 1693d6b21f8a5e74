"""The memory limit of a model: as requested, or a safe share of the free memory.

Built on psutil and torch.cuda.
"""

from __future__ import annotations

import gc
import math
import re

import psutil
import torch

from ...errors import MeasureError
from ...machine.host import host_facts

SAFE_SHARE = {"cpu": 0.6, "cuda": 0.8}  # of the free memory; a CPU's is shared with other processes
MEMORY_WORDS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",
)
DECIMAL = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T"))}
BINARY = {f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)}
UNITS = {"": 1, **DECIMAL, **BINARY}
SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*", re.ASCII)


def bytes_of(size: int | str) -> int:
    """2_000_000_000, '2 GB' or '1.5 GiB' as a number of bytes."""
    units = {name.casefold(): factor for name, factor in UNITS.items()}
    match = SIZE.fullmatch(size) if isinstance(size, str) else None
    if isinstance(size, int) and not isinstance(size, bool):
        count = size
    elif (
        match
        and match[2].casefold() in units
        and math.isfinite(number := float(match[1]) * units[match[2].casefold()])
    ):
        count = int(number)
    else:
        known = ", ".join(name for name in UNITS if name)
        raise MeasureError(
            f"A memory limit of {size!r} cannot be read; give bytes as an int, or a number and one "
            f"of {known}."
        )
    if count < 1:
        raise MeasureError(f"A memory limit of {size!r} holds nothing; give at least one byte.")
    return count


def safe_limit(device: torch.device, *, weights: int) -> int:
    """The bytes of the weights, which are loaded already, and a safe share of the free memory."""
    return weights + int(SAFE_SHARE.get(device.type, 0.6) * _free_bytes(device))


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python, torch or a library below it reports with this error that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error).casefold() for word in MEMORY_WORDS
    )


def release(device: torch.device) -> None:
    """Free the memory that a failed call has left allocated."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    # psutil reports the machine's memory, not the container's
    granted = host_facts().memory_bytes - psutil.Process().memory_info().rss
    return max(0, min(psutil.virtual_memory().available, granted))
