"""The least time that a launch can take on a device: the largest of bytes, products and
instructions.

An inference, not yet compared with a measurement. Blocks are whole: the multiprocessor with the
most of them decides.
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

_FOUR_BYTES = 64  # dp4a a cycle, of a multiprocessor


class Device(NamedTuple):
    """The figures that decide a bound; the clock follows from the published fp32 rate."""

    name: str
    limits: Limits
    multiprocessors: int
    bandwidth_gbs: float
    gops: Mapping[Unit, float]
    clock_ghz: float


class Bound(NamedTuple):
    """The least time of each of the three."""

    bytes_us: float
    products_us: float
    issue_us: float

    @property
    def us(self) -> float:
        """No launch is faster."""
        return max(self)


def device_of(accelerator: Accelerator) -> Device:
    """A CUDA device's figures; one of which they are not all known is refused."""
    ceiling, capability, count = (
        accelerator.ceiling,
        accelerator.compute_capability,
        accelerator.multiprocessors,
    )
    if capability is None or count is None or ceiling.bf16_gflops is None:
        raise KernelError(
            f"The figures that a kernel's bound needs are not known for {accelerator.name}; name "
            "another device."
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
            "four bytes": 8 * _FOUR_BYTES * count * clock_ghz,
            "plain": ceiling.fp32_gflops,
        },
        clock_ghz=clock_ghz,
    )


def bound_of(
    launch: Launch, operations: int, instructions: float, *, unit: Unit, device: Device
) -> Bound:
    """The bound of a launch that does so many operations in all, each of its warps so many
    instructions.
    """
    blocks = math.prod(launch.grid)
    busiest = (
        -(-blocks // device.multiprocessors) * device.multiprocessors
    )  # blocks, were all as busy as the busiest
    moved = sum(one.nbytes for one in launch.arguments if isinstance(one, Tensor))
    issued = round(instructions * warps_of(launch))
    block_ns = issue_bound_ns(
        issued, 1, multiprocessors=device.multiprocessors, clock_ghz=device.clock_ghz
    )
    return Bound(
        bytes_us=moved / device.bandwidth_gbs / 1e3,
        products_us=operations * busiest / blocks / device.gops[unit] / 1e3,
        issue_us=busiest * block_ns / 1e3,
    )


def warps_of(launch: Launch) -> int:
    """Warps in a block."""
    return -(-math.prod(launch.block) // 32)
