"""Read a memory snapshot into columns; nothing of the file is executed.

A pickle may come from anywhere. The opcodes of plain data are followed here, and every other one,
such as those that import or call, is refused by name. Events go into columns as soon as a list of
them is complete, and are emptied: every object is kept to which a later one could refer.
"""

from __future__ import annotations

import gc
import io
import pickle
import pickletools
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from ..._files import checked_path, size_of
from ...errors import FileError, first_line
from ...progress import Progress, progress
from .snapshot import CODES, OOM, OTHER, Block, Segment, Snapshot, Trace
from .stacks import Frame, Stacks

PROTOCOLS = range(2, 6)
CHUNK_BYTES = 4 << 20
MAX_TEXT_BYTES = 1 << 20
MOST_DEVICES = 1 << 10
STOP, MARK, MEMOIZE, TUPLE2 = 0x2E, 0x28, 0x94, 0x86
APPEND, APPENDS, SETITEM, SETITEMS = 0x61, 0x65, 0x73, 0x75
BINGET, LONG_BINGET, BINPUT, LONG_BINPUT = 0x68, 0x6A, 0x71, 0x72
PROTO, FRAME, LONG1 = 0x80, 0x95, 0x8A
# opcodes that push a value: the bytes of their argument, and what it stands for
VALUES: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0x4E: (0, lambda _: None),
    0x88: (0, lambda _: True),
    0x89: (0, lambda _: False),
    0x5D: (0, lambda _: []),
    0x7D: (0, lambda _: {}),
    0x29: (0, lambda _: ()),
    0x4B: (1, lambda argument: argument[0]),
    0x4D: (2, lambda argument: int.from_bytes(argument, "little")),
    0x4A: (4, lambda argument: int.from_bytes(argument, "little", signed=True)),
    0x47: (8, lambda argument: struct.unpack(">d", argument)[0]),
}
TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8}  # opcodes of a text, and how many bytes its length has
ARGUMENTS = {code: size for code, (size, _) in VALUES.items()} | TEXTS | {
    BINGET: 1, LONG_BINGET: 4, BINPUT: 1, LONG_BINPUT: 4, PROTO: 1, FRAME: 8, LONG1: 1,
    STOP: 0, MARK: 0, MEMOIZE: 0, TUPLE2: 0, APPEND: 0, APPENDS: 0, SETITEM: 0, SETITEMS: 0,
}  # fmt: skip
LONGEST = 1 + max(ARGUMENTS.values())  # bytes of an opcode with its argument
CALLING = frozenset(b"cibRo\x81\x82\x83\x84\x92\x93PQ")
NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
DAMAGED = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
LIVE = "this process"
REMEDY = "write it anew with torch.cuda.memory._dump_snapshot."


def read_snapshot(source: str | Path | dict[str, Any]) -> Snapshot:
    """Read a file of `torch.cuda.memory._dump_snapshot`, of any version, without executing it; or
    what `torch.cuda.memory._snapshot` returned in this process.
    """
    if isinstance(source, dict):
        content = pickle.dumps(source, protocol=4)
        return _read(io.BytesIO(content), LIVE, len(content))
    path = checked_path(source)
    try:
        size = size_of(path)
        with path.open("rb") as file:
            return _read(file, path.name, size)
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or first_line(error)}.") from error


def _read(file: BinaryIO, name: str, size: int) -> Snapshot:
    with progress(f"Reading {name}", size) as shown, _without_collection():
        content = _Content(file, shown)
        if not size:
            raise FileError(f"{name} is empty; {REMEDY}")
        start = file.read(2)
        file.seek(0)
        if start[:1] != b"\x80" or (len(start) > 1 and start[1] not in PROTOCOLS):
            raise FileError(
                f"{name} is no pickle of protocol {PROTOCOLS[0]} to {PROTOCOLS[-1]}; give a "
                "file of torch.cuda.memory._dump_snapshot, unpacked."
            )
        reader = _Reader(content)
        try:
            return reader.snapshot(name, size)
        except EOFError as error:
            raise FileError(
                f"{name} was cut short: it ends after {size:,} bytes in the middle of its data; "
                "copy or write it again."
            ) from error
        except _CallingError as error:
            raise FileError(
                f"{name} wants to run code (the pickle opcode {error}); it was refused and nothing "
                "of it was executed. A memory snapshot holds only plain data: get the file anew "
                "from torch.cuda.memory._dump_snapshot."
            ) from error
        except DAMAGED as error:
            raise FileError(
                f"{name} is damaged or no memory snapshot ({_reason(error)}, before byte "
                f"{file.tell():,}); {REMEDY}"
            ) from error


@contextmanager
def _without_collection() -> Iterator[None]:
    """No cycle is made here, and looking for one takes longer than the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"[:120]
    return first_line(error)[:120]


class _CallingError(Exception):
    """An opcode that imports or calls."""


class _Content:
    """The bytes of a file, in chunks."""

    def __init__(self, file: BinaryIO, shown: Progress) -> None:
        self.file, self.shown = file, shown

    def more(self, rest: bytes, count: int) -> bytes:
        """What is left of a chunk and the next one: so many bytes, or the file was cut short."""
        if count > MAX_TEXT_BYTES:
            raise ValueError(f"a text of {count:,} bytes")
        chunk = self.file.read(CHUNK_BYTES)
        self.shown.advance(len(chunk))
        if len(rest) + len(chunk) < count:
            raise EOFError
        return rest + chunk


class _Reader:
    """Builds what the opcodes say; it moves lists of events into columns."""

    def __init__(self, content: _Content) -> None:
        self.content = content
        self.stacks = StackTable()
        self.columns: dict[int, Columns] = {}  # by the identity of a list of events
        self.blocks = 0

    def load(self) -> Any:
        """The plain data of the file."""
        stack: list[Any] = []
        marked: list[list[Any]] = []  # the stacks below each mark
        memo: list[Any] = []
        unpack = struct.Struct("<I").unpack_from
        data, at, last = b"", 0, 0  # an opcode from `last` on may end in the next chunk
        while True:
            if at >= last:
                data, at = self.content.more(data[at:], 1), 0
                last = len(data) - LONGEST
                if ARGUMENTS.get(data[0], 0) >= len(data):
                    raise EOFError
            code = data[at]
            at += 1
            if code == LONG_BINGET:  # the most frequent ones first
                stack.append(memo[unpack(data, at)[0]])
                at += 4
            elif code == BINGET:
                stack.append(memo[data[at]])
                at += 1
            elif code == MEMOIZE:
                memo.append(stack[-1])
            elif code in VALUES:
                size, value = VALUES[code]
                stack.append(value(data[at : at + size]))
                at += size
            elif code == MARK:
                marked.append(stack)
                stack = []
            elif code == SETITEMS:
                items, stack = stack, marked.pop()
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            elif code == APPENDS:
                items, stack = stack, marked.pop()
                self._extend(stack[-1], items)
            elif code in TEXTS or code == LONG1:
                start = at + ARGUMENTS[code]
                end = start + int.from_bytes(data[at:start], "little")
                if end > len(data):
                    data = self.content.more(data[at:], end - at)
                    start, end, at = start - at, end - at, 0
                    last = len(data) - LONGEST
                argument, at = data[start:end], end
                stack.append(
                    int.from_bytes(argument, "little", signed=True)
                    if code == LONG1
                    else argument.decode("utf-8", "surrogatepass")
                )
            elif code in (BINPUT, LONG_BINPUT):
                size = ARGUMENTS[code]
                index = int.from_bytes(data[at : at + size], "little")
                at += size
                if index > len(memo):
                    raise ValueError(f"back reference {index:,} where {len(memo):,} is the next")
                memo[index : index + 1] = [stack[-1]]
            elif code == APPEND:
                value = stack.pop()
                stack[-1].append(value)
            elif code == SETITEM:
                value, key = stack.pop(), stack.pop()
                stack[-1].update([(key, value)])
            elif code == TUPLE2:  # hashing one of nested tuples may never end
                pair = stack[-2], stack[-1]
                if not all(isinstance(number, int) for number in pair):
                    raise ValueError("the pickle opcode TUPLE2 has no place in one but for numbers")
                stack[-2:] = [pair]
            elif code in (PROTO, FRAME):
                at += ARGUMENTS[code]
            elif code == STOP:
                return stack.pop()
            elif code in CALLING:
                raise _CallingError(NAMES[code])
            else:
                name = NAMES.get(code, f"0x{code:02x}")
                raise ValueError(f"the pickle opcode {name} has no place in one")

    def _extend(self, target: Any, items: list[Any]) -> None:
        """Append to a list; of events, keep the columns."""
        if items and isinstance(items[0], dict) and "action" in items[0]:
            self._columns_of(target).add(items)
        else:
            target.extend(items)

    def _columns_of(self, events: Any) -> Columns:
        if id(events) not in self.columns:
            self.columns[id(events)] = Columns(self.stacks, events)
        return self.columns[id(events)]

    def snapshot(self, name: str, size: int) -> Snapshot:
        """What the file holds; an old one is the list of segments itself."""
        data = self.load()
        if isinstance(data, list):
            data = {"segments": data}
        segments = data.get("segments") if isinstance(data, dict) else None
        if not isinstance(segments, list) or not all(isinstance(row, dict) for row in segments):
            raise FileError(
                f"{name} is a pickle, but no memory snapshot: it has no list of segments; "
                "give a file of torch.cuda.memory._dump_snapshot."
            )
        traces = data.get("device_traces", [])
        if not isinstance(traces, list):
            raise ValueError("its events are no list")
        if not all(isinstance(events, list) for events in traces):
            raise ValueError("its events are no lists")
        if len({id(events) for events in traces}) < len(traces) or len(traces) > MOST_DEVICES:
            raise ValueError("it has more devices than a machine")
        for events in traces:
            self._columns_of(events).add(events)  # those that were appended alone
            events.clear()
        settings = data.get("allocator_settings")
        return Snapshot(
            name=name,
            segments=tuple(self._segment(row, size) for row in segments),
            traces=tuple(self._columns_of(events).trace() for events in traces),
            stacks=self.stacks.stacks,
            settings=settings if isinstance(settings, dict) else {},
        )

    def _segment(self, row: dict[str, Any], file_bytes: int) -> Segment:
        address = row.get("address", 0)
        self.blocks += len(row["blocks"])
        if self.blocks > file_bytes:  # the same blocks in many segments
            raise ValueError("it has more blocks than bytes")
        blocks, at = [], address
        for block in row["blocks"]:
            blocks.append(self._block(block, at))
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

    def _block(self, block: dict[str, Any], address: int) -> Block:
        history = block.get("history") or [{}]  # of torch 2.0 and earlier
        first = history[0]
        size = whole(block["size"])
        return Block(
            address=whole(block.get("address", address)),
            size=size,
            requested=whole(block.get("requested_size", first.get("real_size", size))),
            is_free=block["state"] == "inactive",
            stack=self.stacks.index_of(block.get("frames", first.get("frames", []))),
        )


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
        self.kept: list[Any] = []  # so that no other frame gets its identity

    def index_of(self, frames: list[Any]) -> int:
        """The index of a stack, which its list then holds instead of frames."""
        if not frames:
            return 0
        if type(frames[0]) is int:
            if not 0 < frames[0] < len(self.stacks):
                raise ValueError("a call stack is no list of frames")
            return frames[0]
        key = tuple(map(id, frames))
        index = self.seen.get(key)
        if index is None:
            index = self.seen[key] = len(self.stacks)
            self.stacks.stacks.append(tuple(map(self._frame, frames)))
        frames[:] = (index,)
        return index

    def _frame(self, frame: dict[str, Any]) -> int:
        index = self.index_of_frame.get(id(frame))
        if index is None:
            self.kept.append(frame)
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


class Columns:
    """The events of one device, whose list is kept so that no other gets its identity."""

    def __init__(self, stacks: StackTable, events: list[Any] | None = None) -> None:
        self.stacks, self.events = stacks, events
        self.action, self.stack = array("b"), array("i")
        self.address, self.size = array("q"), array("q")
        self.stream, self.time_us = array("q"), array("q")

    def add(self, entries: list[dict[str, Any]]) -> None:
        """Take events, and empty them."""
        actions = [CODES.get(entry["action"], OTHER) for entry in entries]
        index_of = self.stacks.index_of
        self.action.extend(actions)
        self.size.extend([entry["size"] for entry in entries])
        self.stream.extend([entry.get("stream", 0) for entry in entries])
        self.time_us.extend([entry.get("time_us", 0) for entry in entries])
        self.stack.extend([index_of(entry.get("frames", [])) for entry in entries])
        self.address.extend(
            [
                entry["addr"] if action != OOM else entry.get("device_free", entry.get("addr", 0))
                for entry, action in zip(entries, actions, strict=True)
            ]
        )
        if actions and min(self.size[-len(actions) :]) < 0:
            raise ValueError("an event has a negative size")
        for entry in entries:
            entry.clear()

    def trace(self) -> Trace:
        columns = (self.action, self.address, self.size, self.stream, self.time_us, self.stack)
        return Trace(*(numpy.asarray(column) for column in columns))
