"""Compiles every tile without a GPU, drops those that spill or do not fit, and ranks the rest.

The rank is an estimate from the bound and the number of blocks that run at once; no measurement has
confirmed it yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ...errors import KernelError
from ...machine.host import usable_cores
from ...progress import progress
from ..compile import Cubin, cubin_of, program, shipped
from ..disassembly import instructions_run, listing_of, unit_of
from ..kernel import Launch
from ..tiles import Tile, describe_tile
from .bound import Bound, Device, blocks_at_once, bound_of, warps_of


class Candidate(NamedTuple):
    """A tile that can run: its resources, and the least time that it can take."""

    tile: Tile
    registers: int
    shared_bytes: int
    warps: int  # per block
    at_once: int  # blocks per multiprocessor
    instructions: float  # per warp
    bound: Bound

    @property
    def estimated_us(self) -> float:
        """The bound plus the part of the other two times that no other block hides.

        A single block loads, computes and stores in turn.
        """
        return self.bound.us + (sum(self.bound) - self.bound.us) / self.at_once

    @property
    def features(self) -> tuple[float, ...]:
        """Features for the cost model, beside the tile's own numbers."""
        return (
            self.registers,
            self.shared_bytes,
            self.at_once * self.warps,
            self.instructions,
            *self.bound,
            self.estimated_us,
        )


class Candidates(NamedTuple):
    """The tiles that can run, the most promising first, and why the others cannot."""

    ranked: tuple[Candidate, ...]
    dropped: tuple[tuple[Tile, str], ...]

    def table(self) -> list[dict[str, str]]:
        """A row for each tile that can run."""
        return [
            {
                "rank": str(rank),
                **{name: str(number) for name, number in candidate.tile.items()},
                "registers": str(candidate.registers),
                "shared kB": f"{candidate.shared_bytes / 1024:.1f}",
                "blocks at once": str(candidate.at_once),
                "instructions": f"{candidate.instructions:,.0f}",
                "bytes µs": f"{candidate.bound.bytes_us:.1f}",
                "products µs": f"{candidate.bound.products_us:.1f}",
                "issue µs": f"{candidate.bound.issue_us:.1f}",
                "estimated µs": f"{candidate.estimated_us:.1f}",
            }
            for rank, candidate in enumerate(self.ranked, 1)
        ]


def compile_tiles(
    tiles: Iterable[Tile],
    launch_of: Callable[[Tile], Launch],
    operations: int,
    *,
    architecture: str,
    device: Device,
) -> Candidates:
    """Compile every tile's launch, drop and rank; the `operations` are the same for each."""
    tiles = list(tiles)
    ranked: list[Candidate] = []
    dropped: list[tuple[Tile, str]] = []

    def compiled(tile: Tile) -> Candidate | str:
        try:
            return _candidate(tile, launch_of(tile), operations, architecture, device)
        except KernelError as error:
            return str(error)

    with (
        progress("tiles compiled", len(tiles)) as shown,
        ThreadPoolExecutor(usable_cores()[0]) as pool,
    ):
        for tile, result in zip(tiles, pool.map(compiled, tiles), strict=True):
            shown.advance(doing=describe_tile(tile))
            if isinstance(result, str):
                dropped.append((tile, result))
            else:
                ranked.append(result)
    ranked.sort(key=lambda candidate: candidate.estimated_us)
    return Candidates(tuple(ranked), tuple(dropped))


def _candidate(
    tile: Tile, launch: Launch, operations: int, architecture: str, device: Device
) -> Candidate:
    cubin = cubin_of(program(shipped(launch.kernel), launch.entry, architecture))
    blocks, warps = math.prod(launch.grid), warps_of(launch)
    at_once = min(_resident_blocks(launch, cubin, device), -(-blocks // device.multiprocessors))
    listing = listing_of(cubin.path)
    instructions = instructions_run(listing, operations / (blocks * warps))
    bound = bound_of(launch, operations, instructions, unit=unit_of(listing), device=device)
    return Candidate(
        tile, cubin.resources.registers, launch.shared_bytes, warps, at_once, instructions, bound
    )


def _resident_blocks(launch: Launch, cubin: Cubin, device: Device) -> int:
    """How many blocks run at once; raises if registers spill or no block fits."""
    if cubin.resources.spill_bytes:
        raise KernelError(f"{cubin.resources.spill_bytes} bytes of registers spill")
    if count := blocks_at_once(launch, cubin.resources.registers, device.limits):
        return count
    raise KernelError(
        f"no block fits: {cubin.resources.registers} registers for each of "
        f"{warps_of(launch) * 32} threads, {launch.shared_bytes:,} bytes of shared memory"
    )
