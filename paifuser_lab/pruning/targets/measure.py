"""The staircases of a model's layers: from the cache, or measured now, all widths of a layer in
turn.

They are cached in one file per machine, number of threads and torch version. Other processes on the
same cores would slow down some widths and not others, so the result is the time that nine in ten
calls exceed, as for every layer timed alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ..._files import cache_file
from ...errors import FileError, ShouldStop, WorkloadError, stop_if_asked
from ...machine import hardware, threads
from ...measure import FEWEST, WARM, clock_for, in_turn, timed_ms
from ...model.watch import describe
from ...progress import progress
from ...records import Staircase, StaircaseTable
from ...workload import Derived, Workload, workload_of
from ..groups import Structure, couple
from .layer_families import MOST_WIDTHS, Buffers, Family, family_of, full_width

VIEW_SECONDS = 10.0  # to measure the staircases that are shown
VERSION = 1  # raise it when layers are timed differently: old staircases are then ignored
MEAN_SHARE = 0.4  # the mean time of a layer's widths, as a share of the widest's
FEWEST_WIDTHS = 2
LARGE, COUNT, PIN = 4 << 20, 32, 1 << 10  # bytes, how many of them, bytes
# bytes: once a block of up to this size is freed, glibc keeps freed blocks of its size from then on
LARGEST_KEPT = (32 << 20) - (1 << 16)

Key = tuple[str, int, int]  # likeness, input and output channels


def key_of(family: Family) -> Key:
    """The key of a family's staircase."""
    return family.likeness, full_width(family.reads), full_width(family.makes)


def staircases(
    families: Iterable[Family],
    *,
    count: int,
    seconds: float,
    should_stop: ShouldStop | None = None,
) -> dict[Key, Staircase]:
    """The staircase of each family; when interrupted, those already measured stay in the cache."""
    requested = {key_of(family): family for family in families}
    table = kept_table(count)
    known = {key: row for key in requested if (row := table.find(*key)) is not None}
    missing = {key: family for key, family in requested.items() if key not in known}
    deadline = time.perf_counter() + seconds
    try:
        with progress("measuring widths", len(missing)) as shown, threads(count), torch.no_grad():
            for index, (key, family) in enumerate(missing.items()):
                stop_if_asked(should_stop)
                left = max(0.0, deadline - time.perf_counter()) / (len(missing) - index)
                known[key] = _measured(family, table, left)
                shown.advance(doing=family.likeness)
    finally:
        keep(
            table.model_copy(
                update={"rows": tuple(known[key] for key in missing if key in known), "wholes": ()}
            )
        )
    return known


def staircase(
    subject: Workload | Derived,
    layer: str,
    *,
    threads: int | None = None,
    seconds: float = VIEW_SECONDS,
) -> Staircase:
    """The time of a layer by its input and output channels: from the cache, or measured now."""
    work = workload_of(subject)
    if layer not in dict(work.model.named_modules()):
        raise WorkloadError(
            f"{work.name} has no layer '{layer}'; use a name from model.named_modules()."
        )
    products = couple(work.model, work.inputs).space.products
    families = (family_of(product) for product in products if product.layer == layer)
    family = next((family for family in families if family is not None), None)
    if family is None:
        raise WorkloadError(
            f"{describe(work.model, layer)} has no staircase: it runs no convolution or matrix "
            "product that can be timed by itself."
        )
    count = threads or subject.own_threads or torch.get_num_threads()
    (measured,) = staircases([family], count=count, seconds=seconds).values()
    return measured


def stairs(
    structure: Structure,
    *,
    seconds: float = VIEW_SECONDS,
    should_stop: ShouldStop | None = None,
) -> dict[str, list[tuple[float, float]]]:
    """The time of each layer by output channels with all its inputs: (channels, ms)."""
    families = {
        product.layer: family
        for product in structure.space.products
        if (family := family_of(product)) is not None
    }
    count = torch.get_num_threads()
    measured = staircases(families.values(), count=count, seconds=seconds, should_stop=should_stop)
    known = {layer: measured[key_of(family)] for layer, family in families.items()}
    return {
        layer: [(float(makes), ms) for makes, ms in zip(row.makes, row.by_made, strict=True)]
        for layer, row in known.items()
    }


def kept_table(count: int) -> StaircaseTable:
    """The cached staircases for this machine and threads; empty if there are none or damaged."""
    empty = StaircaseTable(
        machine=hardware().label, threads=count, torch_version=str(torch.__version__)
    )
    with suppress(FileError, OSError):
        return StaircaseTable.load(_path(empty))
    return empty


def keep(newer: StaircaseTable) -> None:
    """Add the rows to the cache, beside rows that another process wrote meanwhile."""
    if not newer.rows and not newer.wholes:
        return
    try:
        kept_table(newer.threads).joined(newer).save(_path(newer))
    except (FileError, OSError) as error:
        warnings.warn(f"Widths will be timed again the next time: {error}", stacklevel=2)


def _path(table: StaircaseTable) -> Path:
    return cache_file("staircases", VERSION, table.machine, table.threads, table.torch_version)


def _measured(family: Family, table: StaircaseTable, seconds: float) -> Staircase:
    device, buffers = torch.device(family.shape.device), family.buffers()
    reads, makes = family.grids(_affordable(family, buffers, device, seconds))
    calls: Mapping[tuple[int, int], Callable[[], Any]] = {
        (read, make): family.call(buffers, read, make) for read in reads for make in makes
    }
    with memory_at_hand(device):
        ms = in_turn(calls, device, seconds, clock_for(device))
    return Staircase(
        likeness=family.likeness,
        machine=table.machine,
        threads=table.threads,
        torch_version=table.torch_version,
        reads=reads,
        makes=makes,
        ms=tuple(tuple(ms[read, make] for make in makes) for read in reads),
    )


def _affordable(family: Family, buffers: Buffers, device: torch.device, seconds: float) -> int:
    """The number of widths of each side that there is time for."""
    widest = family.call(buffers, full_width(family.reads), full_width(family.makes))
    call_s = MEAN_SHARE * min(timed_ms(widest, device) for _ in range(3)) / 1e3
    for most in range(MOST_WIDTHS, FEWEST_WIDTHS, -1):
        reads, makes = family.grids(most)
        if len(reads) * len(makes) * (FEWEST + WARM) * call_s <= seconds:
            return most
    return FEWEST_WIDTHS


@contextmanager
def memory_at_hand(device: torch.device) -> Iterator[None]:
    """Keep freed memory in the process inside the block.

    An allocator returns free memory at its end to the system and requests it again, call by call;
    whether it does depends on what happens to be there. This made the same convolution take 2.9 or
    11 ms.
    """
    if device.type != "cpu":
        yield
        return
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)
    blocks = [torch.zeros(LARGE, dtype=torch.uint8) for _ in range(COUNT)]
    # behind the blocks, so that the memory before them stays in the process
    pins = [torch.zeros(PIN, dtype=torch.uint8) for _ in range(COUNT)]
    blocks.clear()
    yield
    pins.clear()
