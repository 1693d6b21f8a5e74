"""The least time that a launch can take on a device: the largest of bytes, products and
instructions.

An estimate, not yet compared with a measurement. Blocks are not divided: the multiprocessor with
the most blocks decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from ...errors import KernelError
from ...records import Accelerator
from ..disassembly import Unit
from ..launch import Launch
from ..resources import issue_bound_ns
from .occupancy import Limits, limits_of

_DP4A_PER_CYCLE = 64  # of a multiprocessor


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
    issued = round(instructions * warps_of(launch))
    block_ns = issue_bound_ns(
        issued, 1, multiprocessors=device.multiprocessors, clock_ghz=device.clock_ghz
    )
    return Bound(
        bytes_us=moved / device.bandwidth_gbs / 1e3,
        products_us=operations * padded_blocks / blocks / device.gops[unit] / 1e3,
        issue_us=padded_blocks * block_ns / 1e3,
    )


def warps_of(launch: Launch) -> int:
    """The number of warps in a block."""
    return -(-math.prod(launch.block) // 32)
