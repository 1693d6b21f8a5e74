"""The staircases of a model's layers: from the cache, or measured now, all widths of a layer in
turn.

They are kept a file a machine, number of threads and torch. The cores that a neighbour takes would
slow some widths down and not others, so that what nine calls in ten take longer than counts, as for
all that is timed alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..._files import cache_file
from ...errors import FileError
from ...machine import hardware, threads
from ...measure import FEWEST, WARM, in_turn, timed_ms
from ...progress import progress
from ...records import Staircase, StaircaseTable
from .layer_families import MOST_WIDTHS, Family, Room, full_width
from .steady_timing import clock, memory_at_hand

VERSION = 1  # raise it when layers are timed otherwise: old staircases are then left unread
ON_AVERAGE = 0.4  # of the time of the widest: what the widths of a layer take
FEWEST_WIDTHS = 2

Key = tuple[str, int, int]  # likeness, channels read and made


def key_of(family: Family) -> Key:
    """What tells a staircase from others."""
    return family.likeness, full_width(family.reads), full_width(family.makes)


def staircases(families: Iterable[Family], *, count: int, seconds: float) -> dict[Key, Staircase]:
    """The staircase of each family; where it is stopped, those that were measured are kept for the
    next time.
    """
    wanted = {key_of(one): one for one in families}
    table = kept_table(count)
    found = {key: row for key in wanted if (row := table.find(*key)) is not None}
    missing = {key: one for key, one in wanted.items() if key not in found}
    until = time.perf_counter() + seconds
    try:
        with progress("measuring widths", len(missing)) as shown, threads(count), torch.no_grad():
            for place, (key, family) in enumerate(missing.items()):
                left = max(0.0, until - time.perf_counter()) / (len(missing) - place)
                found[key] = _measured(family, table, left)
                shown.advance(doing=family.likeness)
    finally:
        keep(
            table.model_copy(
                update={"rows": tuple(found[key] for key in missing if key in found), "wholes": ()}
            )
        )
    return found


def kept_table(count: int) -> StaircaseTable:
    """What was measured here before with so many threads; an empty table where nothing was, or
    where the file is damaged.
    """
    empty = StaircaseTable(
        machine=hardware().label, threads=count, torch_version=str(torch.__version__)
    )
    with suppress(FileError, OSError):
        kept = StaircaseTable.load(_path(empty))
        if (kept.machine, kept.threads, kept.torch_version) == (
            empty.machine,
            empty.threads,
            empty.torch_version,
        ):
            return kept
    return empty


def keep(newer: StaircaseTable) -> None:
    """Keep the rows for the next time, beside what another process wrote meanwhile."""
    if not newer.rows and not newer.wholes:
        return
    try:
        kept_table(newer.threads).joined(newer).save(_path(newer))
    except (FileError, OSError) as error:
        warnings.warn(f"Widths will be timed again the next time: {error}", stacklevel=2)


def _path(table: StaircaseTable) -> Path:
    return cache_file("staircases", VERSION, table.machine, table.threads, table.torch_version)


def _measured(family: Family, table: StaircaseTable, seconds: float) -> Staircase:
    device, room = torch.device(family.shape.device), family.room()
    reads, makes = family.grids(_affordable(family, room, device, seconds))
    calls: Mapping[tuple[int, int], Callable[[], Any]] = {
        (read, made): family.call(room, read, made) for read in reads for made in makes
    }
    with memory_at_hand(device):
        taken = in_turn(calls, device, seconds, clock(device, table.threads))
    return Staircase(
        likeness=family.likeness,
        machine=table.machine,
        threads=table.threads,
        torch_version=table.torch_version,
        reads=reads,
        makes=makes,
        ms=tuple(tuple(taken[read, made] for made in makes) for read in reads),
    )


def _affordable(family: Family, room: Room, device: torch.device, seconds: float) -> int:
    """How many widths of each side there is time for."""
    widest = family.call(room, full_width(family.reads), full_width(family.makes))
    a_call_s = ON_AVERAGE * min(timed_ms(widest, device) for _ in range(3)) / 1e3
    for most in range(MOST_WIDTHS, FEWEST_WIDTHS, -1):
        reads, makes = family.grids(most)
        if len(reads) * len(makes) * (FEWEST + WARM) * a_call_s <= seconds:
            return most
    return FEWEST_WIDTHS
