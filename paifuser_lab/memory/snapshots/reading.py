"""Read a memory snapshot into columns; nothing of the file is executed.

A pickle may come from anywhere: what it names to import or to call is refused, so that only plain
data are built. Built on pickle.
"""

from __future__ import annotations

import io
import pickle
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
import psutil

from ..._files import checked_path, size_of
from ...errors import FileError, first_line
from ...measure.timing import no_collection
from ...progress import Progress, progress
from .snapshot import CODES, OOM, OTHER, Block, Segment, Snapshot, Trace
from .stacks import Frame, Stacks

CHUNK_BYTES = 4 << 20
LEAST_BYTES, MOST_GROWTH = 1 << 29, 16  # of memory, and how many times the file
DAMAGED = (
    pickle.UnpicklingError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
LIVE = "this process"
_LIMIT = Lock()
REMEDY = "write it anew with torch.cuda.memory._dump_snapshot."


def read_snapshot(source: str | Path | dict[str, Any]) -> Snapshot:
    """Read a file of torch's `_dump_snapshot` without executing it, or what `_snapshot` gave."""
    if isinstance(source, dict):
        return _snapshot(source, LIVE)
    path = checked_path(source)
    try:
        size = size_of(path)
        with path.open("rb") as file, progress(f"Reading {path.name}", size) as shown:
            return _read(file, path.name, size, shown)
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or first_line(error)}.") from error


def _read(file: io.BufferedReader, name: str, size: int, shown: Progress) -> Snapshot:
    if not size:
        raise FileError(f"{name} is empty; {REMEDY}")
    if file.read(1) != pickle.PROTO:
        raise FileError(
            f"{name} is no pickle; give a file of torch.cuda.memory._dump_snapshot, unpacked."
        )
    file.seek(0)
    try:
        with no_collection():  # no cycle is made here, and looking for one takes longer
            content = io.BufferedReader(_Followed(file, shown), CHUNK_BYTES)
            with _memory_within(LEAST_BYTES + MOST_GROWTH * size):
                data = _PlainData(content).load()
            return _snapshot(data, name)
    except _CallingError as error:
        raise FileError(
            f"{name} wants to run code ({error}); it was refused and nothing of it was executed. "
            "A memory snapshot holds only plain data: get the file anew from "
            "torch.cuda.memory._dump_snapshot."
        ) from error
    except (EOFError, *DAMAGED) as error:
        if isinstance(error, EOFError) or "truncated" in str(error):
            raise FileError(
                f"{name} was cut short: it ends after {size:,} bytes in the middle of its data; "
                "copy or write it again."
            ) from error
        raise FileError(
            f"{name} is damaged or no memory snapshot ({_reason(error)}); {REMEDY}"
        ) from error


@contextmanager
def _memory_within(growth: int) -> Iterator[None]:
    """MemoryError past this growth of the process: one number of a damaged pickle, the index of an
    object, makes it allocate a table of gigabytes.
    """
    if sys.platform != "linux":  # no such limit
        yield
        return
    import resource

    with _LIMIT:  # it is the process's
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [psutil.Process().memory_info().data + growth, soft, hard]
        limit = min(bound for bound in limits if bound != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"[:120]
    return first_line(error)[:120]


class _CallingError(Exception):
    """What a pickle names to import or to call."""


class _PlainData(pickle.Unpickler):
    """Builds plain data alone: everything that could be called would have to be found first."""

    def find_class(self, module: str, name: str) -> Any:
        raise _CallingError(f"{module}.{name}")


class _Followed(io.RawIOBase):
    """A file whose reading is shown."""

    def __init__(self, file: io.BufferedReader, shown: Progress) -> None:
        self.file, self.shown = file, shown

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        self.shown.advance(count)
        return count


def _snapshot(data: Any, name: str) -> Snapshot:
    """A snapshot of its plain data; an old one is the list of segments itself."""
    if isinstance(data, list):
        data = {"segments": data}
    segments = data.get("segments") if isinstance(data, dict) else None
    if not isinstance(segments, list) or not all(isinstance(row, dict) for row in segments):
        raise FileError(
            f"{name} is a pickle, but no memory snapshot: it has no list of segments; "
            "give a file of torch.cuda.memory._dump_snapshot."
        )
    stacks = StackTable()
    settings = data.get("allocator_settings")
    return Snapshot(
        name=name,
        segments=tuple(_segment(row, stacks) for row in segments),
        traces=tuple(_trace(events, stacks) for events in data.get("device_traces", [])),
        stacks=stacks.stacks,
        settings=settings if isinstance(settings, dict) else {},
    )


def _segment(row: dict[str, Any], stacks: StackTable) -> Segment:
    address = row.get("address", 0)
    blocks, at = [], address
    for block in row["blocks"]:
        blocks.append(_block(block, at, stacks))
        at += blocks[-1].size
    return Segment(
        device=whole(row.get("device", 0)),
        address=whole(address),
        size=whole(row["total_size"]),
        stream=whole(row.get("stream", 0)),
        is_large=row.get("segment_type", "large") != "small",
        is_expandable=bool(row.get("is_expandable", False)),
        blocks=tuple(blocks),
    )


def _block(block: dict[str, Any], address: int, stacks: StackTable) -> Block:
    history = block.get("history") or [{}]  # of torch 2.0 and earlier
    first = history[0]
    size = whole(block["size"])
    return Block(
        address=whole(block.get("address", address)),
        size=size,
        requested=whole(block.get("requested_size", first.get("real_size", size))),
        is_free=block["state"] == "inactive",
        stack=stacks.index_of(block.get("frames", first.get("frames", []))),
    )


def _trace(events: list[dict[str, Any]], stacks: StackTable) -> Trace:
    """The events of one device as columns."""
    actions = array("b", [CODES.get(event["action"], OTHER) for event in events])
    addresses = array(
        "q",
        [
            event["addr"] if action != OOM else event.get("device_free", event.get("addr", 0))
            for event, action in zip(events, actions, strict=True)
        ],
    )
    sizes = array("q", [event["size"] for event in events])
    if min(sizes, default=0) < 0:
        raise ValueError("an event has a negative size")
    streams = array("q", [event.get("stream", 0) for event in events])
    times = array("q", [event.get("time_us", 0) for event in events])
    numbers = array("i", [stacks.index_of(event.get("frames", [])) for event in events])
    columns = (actions, addresses, sizes, streams, times, numbers)
    return Trace(*(numpy.asarray(column) for column in columns))


def whole(value: Any) -> int:
    """A size, an address or a number of the file; raises for anything else."""
    if not isinstance(value, int) or not -(1 << 62) < value < 1 << 63:
        raise ValueError(f"of type {type(value).__name__} is what should be a size or an address")
    return value


class StackTable:
    """Finds each call stack once, by the identity of its frames, which the file shares."""

    def __init__(self) -> None:
        self.stacks = Stacks()
        self.seen: dict[tuple[int, ...], int] = {(): 0}
        self.index_of_frame: dict[int, int] = {}

    def index_of(self, frames: list[Any]) -> int:
        key = tuple(map(id, frames))
        index = self.seen.get(key)
        if index is None:
            index = self.seen[key] = len(self.stacks)
            self.stacks.stacks.append(tuple(map(self._frame, frames)))
        return index

    def _frame(self, frame: dict[str, Any]) -> int:
        index = self.index_of_frame.get(id(frame))
        if index is None:
            index = self.index_of_frame[id(frame)] = len(self.stacks.frames)
            self.stacks.frames.append(
                Frame(_text(frame["name"]), _text(frame["filename"]), _line(frame["line"]))
            )
        return index


def _line(value: Any) -> int:
    """A line's number; torch writes any number where a native function has no line."""
    if not isinstance(value, int):
        raise ValueError(f"of type {type(value).__name__} is what should be a line")
    return value if 0 <= value < 1 << 31 else 0


def _text(value: Any) -> str:
    """A text without what a terminal would obey or a file cannot hold."""
    if not isinstance(value, str):
        raise ValueError(f"of type {type(value).__name__} is what should be a name")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for letter in value)  # fmt: skip
