"""The memory limit where none is given, a safe share of the free memory; errors of running out."""

from __future__ import annotations

import gc

import torch

from ..machine.host import free_memory

SAFE_SHARE = {"cpu": 0.6, "cuda": 0.8}  # of the free memory; a CPU's is shared with other processes
MEMORY_WORDS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",
)


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
    return free_memory()
