"""How many blocks of an entry a multiprocessor runs at once, from NVIDIA's published limits."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import KernelError
from ..launch import Launch
from ..tiles import REGISTERS, RESERVED_BYTES

_REGISTERS_AT_ONCE = 256  # a warp's registers are handed out in so many
_WARPS_AT_ONCE = 4  # and for so many warps together: one for each scheduler


class Limits(NamedTuple):
    """What a multiprocessor has."""

    threads: int
    blocks: int
    shared_bytes: int
    lanes: int  # multiply-adds in fp32 a cycle


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
    """How many blocks run on a multiprocessor at once; 0 where not even one fits."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    warps = up(-(-threads // 32), _WARPS_AT_ONCE)
    shared = launch.shared_bytes + RESERVED_BYTES
    by_registers = (
        REGISTERS // (warps * up(registers * 32, _REGISTERS_AT_ONCE))
        if registers
        else limits.blocks
    )
    return min(
        limits.blocks, limits.threads // threads, limits.shared_bytes // shared, by_registers
    )


def up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step
