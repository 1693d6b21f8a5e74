"""Every tile compiled without a GPU: what spills or does not fit is dropped, the rest is ranked.

The rank is a guess made of the bound and of how many blocks run at once; no measurement has
confirmed it yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ...errors import KernelError, MissingExtraError
from ...machine.host import usable_cores
from ...progress import progress
from ..compile import program
from ..cubins import Cubin, cubin_of
from ..disassembly import instructions_run, listing_of, unit_of
from ..launch import Launch
from ..tiles import Tile
from .bound import Bound, Device, bound_of, warps_of
from .occupancy import blocks_at_once
from .record import describe_tile


class Prospect(NamedTuple):
    """A tile that can run: its resources, and the least time that it can take."""

    tile: Tile
    registers: int
    shared_bytes: int
    warps: int  # of a block
    at_once: int  # blocks of a multiprocessor
    instructions: float  # of a warp
    bound: Bound

    @property
    def likely_us(self) -> float:
        """The bound plus the part of the other two times that no other block hides.

        A block alone loads, computes and stores in turn.
        """
        return self.bound.us + (sum(self.bound) - self.bound.us) / self.at_once

    @property
    def known(self) -> tuple[float, ...]:
        """A model's features, beside the tile's own numbers."""
        return (
            self.registers,
            self.shared_bytes,
            self.at_once * self.warps,
            self.instructions,
            *self.bound,
            self.likely_us,
        )


class Prospects(NamedTuple):
    """Those that can run, the most promising first, and why the others cannot."""

    kept: tuple[Prospect, ...]
    dropped: tuple[tuple[Tile, str], ...]

    def table(self) -> list[dict[str, str]]:
        """A row a tile that can run."""
        return [_row(rank, one) for rank, one in enumerate(self.kept, 1)]


def prospects(
    tiles: Iterable[Tile],
    launch_of: Callable[[Tile], Launch],
    operations: int,
    *,
    architecture: str,
    device: Device,
) -> Prospects:
    """Compile every tile's launch, drop and rank; the work is the same `operations` for each."""
    wanted = list(tiles)
    kept: list[Prospect] = []
    dropped: list[tuple[Tile, str]] = []

    def compiled(tile: Tile) -> Prospect | str:
        try:
            return _prospect(tile, launch_of(tile), operations, architecture, device)
        except MissingExtraError:
            raise
        except KernelError as error:
            return str(error)

    with (
        progress("tiles compiled", len(wanted)) as shown,
        ThreadPoolExecutor(usable_cores()[0]) as pool,
    ):
        for tile, found in zip(wanted, pool.map(compiled, wanted), strict=True):
            shown.advance(doing=describe_tile(dict(tile)))
            if isinstance(found, str):
                dropped.append((tile, found))
            else:
                kept.append(found)
    return Prospects(tuple(sorted(kept, key=lambda one: one.likely_us)), tuple(dropped))


def _prospect(
    tile: Tile, launch: Launch, operations: int, architecture: str, device: Device
) -> Prospect:
    made = cubin_of(program(launch.kernel, launch.entry, architecture))
    blocks, warps = math.prod(launch.grid), warps_of(launch)
    at_once = min(_fitting(launch, made, device), -(-blocks // device.multiprocessors))
    listing = listing_of(made.path)
    instructions = instructions_run(listing, operations / (blocks * warps))
    bound = bound_of(launch, operations, instructions, unit=unit_of(listing), device=device)
    return Prospect(
        tile, made.resources.registers, launch.shared_bytes, warps, at_once, instructions, bound
    )


def _fitting(launch: Launch, made: Cubin, device: Device) -> int:
    """How many blocks run at once; a reason where it should not or cannot run."""
    if made.resources.spill_bytes:
        raise KernelError(f"{made.resources.spill_bytes} bytes of registers spill")
    if count := blocks_at_once(launch, made.resources.registers, device.limits):
        return count
    raise KernelError(
        f"no block fits: {made.resources.registers} registers for each of {warps_of(launch) * 32} "
        "threads, "
        f"{launch.shared_bytes:,} bytes of shared memory"
    )


def _row(rank: int, one: Prospect) -> dict[str, str]:
    return {
        "rank": str(rank),
        **{name: str(number) for name, number in one.tile.items()},
        "registers": str(one.registers),
        "shared kB": f"{one.shared_bytes / 1024:.1f}",
        "blocks at once": str(one.at_once),
        "instructions": f"{one.instructions:,.0f}",
        "bytes µs": f"{one.bound.bytes_us:.1f}",
        "products µs": f"{one.bound.products_us:.1f}",
        "issue µs": f"{one.bound.issue_us:.1f}",
        "likely µs": f"{one.likely_us:.1f}",
    }
