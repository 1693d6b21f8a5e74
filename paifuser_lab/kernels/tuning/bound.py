"""The least time that a launch can take on a device, and how many of its blocks a multiprocessor
runs at once, by NVIDIA's published limits.

The time is the largest of those for bytes, products and instructions: an estimate, not yet compared
with a measurement. Blocks are not divided: the multiprocessor with the most blocks decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from ...errors import KernelError
from ...records import Accelerator
from ..disassembly import Unit
from ..kernel import Launch
from ..tiles import REGISTERS, RESERVED_BYTES

_DP4A_PER_CYCLE = 64  # of a multiprocessor
_ISSUED_PER_CYCLE = 4  # instructions of a multiprocessor, one by each warp scheduler
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


class Device(NamedTuple):
    """A device's figures that decide a bound; the clock follows from the published fp32 rate."""

    name: str
    limits: Limits
    multiprocessors: int
    bandwidth_gbs: float
    gops: Mapping[Unit, float]
    clock_ghz: float


class Bound(NamedTuple):
    """The least time for bytes, products and issuing."""

    bytes_us: float
    products_us: float
    issue_us: float

    @property
    def us(self) -> float:
        """The largest of the three."""
        return max(self)


def device_of(accelerator: Accelerator) -> Device:
    """A CUDA device's figures; raises if they are not all known."""
    ceiling, capability, count = (
        accelerator.ceiling,
        accelerator.compute_capability,
        accelerator.multiprocessors,
    )
    if capability is None or count is None or ceiling.bf16_gflops is None:
        raise KernelError(
            f"The figures that a kernel's bound needs are not known for {accelerator.name}; "
            "choose another device."
        )
    limits = limits_of(capability)
    clock_ghz = ceiling.fp32_gflops / (2 * count * limits.lanes)
    return Device(
        name=accelerator.name,
        limits=limits,
        multiprocessors=count,
        bandwidth_gbs=ceiling.bandwidth_gbs,
        gops={
            "matrices": ceiling.bf16_gflops,
            "int8 matrices": ceiling.int8_gops or ceiling.bf16_gflops,
            "four bytes": 8 * _DP4A_PER_CYCLE * count * clock_ghz,
            "plain": ceiling.fp32_gflops,
        },
        clock_ghz=clock_ghz,
    )


def bound_of(
    launch: Launch, operations: int, instructions: float, *, unit: Unit, device: Device
) -> Bound:
    """The bound of a launch, from its total operations and the instructions of one warp."""
    blocks = math.prod(launch.grid)
    # the number of blocks if every multiprocessor had as many as the busiest one
    padded_blocks = -(-blocks // device.multiprocessors) * device.multiprocessors
    moved = sum(value.nbytes for value in launch.arguments if isinstance(value, Tensor))
    issued = padded_blocks * round(instructions * warps_of(launch))
    issued_per_us = device.multiprocessors * _ISSUED_PER_CYCLE * device.clock_ghz * 1e3
    return Bound(
        bytes_us=moved / device.bandwidth_gbs / 1e3,
        products_us=operations * padded_blocks / blocks / device.gops[unit] / 1e3,
        issue_us=issued / issued_per_us,
    )


def warps_of(launch: Launch) -> int:
    """The number of warps in a block."""
    return -(-math.prod(launch.block) // 32)


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
    threads = math.prod(launch.block)
    warps = _round_up(warps_of(launch), _WARP_UNIT)
    shared = launch.shared_bytes + RESERVED_BYTES
    by_registers = REGISTERS // (warps * _round_up(max(1, registers) * 32, _REGISTER_UNIT))
    return min(
        limits.blocks, limits.threads // threads, limits.shared_bytes // shared, by_registers
    )


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
