"""How many blocks of an entry a multiprocessor runs at once, from NVIDIA's published limits."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import KernelError
from ..launch import Launch
from ..tiles import REGISTERS, RESERVED_BYTES

_REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of it
_WARP_UNIT = 4  # and to so many warps together: one for each scheduler


class Limits(NamedTuple):
    """The limits of a multiprocessor."""

    threads: int
    blocks: int
    shared_bytes: int
    lanes: int  # fp32 multiply-adds per cycle


LIMITS = {
    (8, 0): Limits(2048, 32, 164 << 10, 64),
    (8, 6): Limits(1536, 16, 100 << 10, 128),
    (8, 9): Limits(1536, 24, 100 << 10, 128),
    (9, 0): Limits(2048, 32, 228 << 10, 128),
    (10, 0): Limits(2048, 32, 228 << 10, 128),
    (12, 0): Limits(1536, 24, 100 << 10, 128),
}


def limits_of(capability: tuple[int, int]) -> Limits:
    """The limits of a compute capability, or of the nearest older one of its generation."""
    fits = [known for known in LIMITS if known[0] == capability[0] and known <= capability]
    if not fits:
        known = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
        raise KernelError(
            f"The limits of compute capability {capability[0]}.{capability[1]} are not known; "
            f"those of {known} are."
        )
    return LIMITS[max(fits)]


def blocks_at_once(launch: Launch, registers: int, limits: Limits) -> int:
    """How many blocks run on a multiprocessor at once; 0 if not even one fits."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    warps = round_up(-(-threads // 32), _WARP_UNIT)
    shared = launch.shared_bytes + RESERVED_BYTES
    by_registers = (
        REGISTERS // (warps * round_up(registers * 32, _REGISTER_UNIT))
        if registers
        else limits.blocks
    )
    return min(
        limits.blocks, limits.threads // threads, limits.shared_bytes // shared, by_registers
    )


def round_up(number: int, step: int) -> int:
    """The smallest multiple of `step` that is not below the number."""
    return -(-number // step) * step
