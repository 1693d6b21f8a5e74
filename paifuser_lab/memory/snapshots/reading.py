"""Read a memory snapshot, piece by piece, into columns; nothing of the file is executed.

A pickle may come from anywhere. Its opcodes are checked first (`opcodes`), and only what builds
plain data reaches Python's own unpickler, whose doors to classes and functions are closed as well.
Events go into columns a thousand at a time, and are emptied at once: the unpickler keeps every
object to which a later one could refer.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..._files import checked_path, size_of
from ...errors import FileError, first_line
from ...progress import progress
from .columns import Columns, StackTable, whole
from .opcodes import FRAME, MARK, STOP, Opcodes
from .snapshot import Block, Segment, Snapshot

TRACES = b"\x8c\x0ddevice_traces", b"X\x0d\x00\x00\x00device_traces"
MEMOIZE = b"\x94"
DAMAGED = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)
LIVE = "this process"
REMEDY = "write it anew with torch.cuda.memory._dump_snapshot."


def read_snapshot(source: str | Path | dict[str, Any]) -> Snapshot:
    """Read a file of `torch.cuda.memory._dump_snapshot`, of any version, without executing it; or
    what `torch.cuda.memory._snapshot` returned in this process.
    """
    if isinstance(source, dict):
        content = pickle.dumps(source, protocol=4)
        with _without_collection():
            return _read(io.BytesIO(content), LIVE, len(content))
    path = checked_path(source)
    try:
        size = size_of(path)
        with path.open("rb") as file, _without_collection():
            return _read(file, path.name, size)
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or first_line(error)}.") from error


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


def _read(file: BinaryIO, name: str, size: int) -> Snapshot:
    with progress(f"Reading {name}", size) as shown:
        opcodes = Opcodes(file, name, shown)
        reader = _Reader(opcodes, name)
        try:
            return reader.snapshot()
        except DAMAGED as error:
            raise FileError(
                f"{name} is damaged or no memory snapshot ({_reason(error)}, before byte "
                f"{opcodes.offset:,}); {REMEDY}"
            ) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"[:120]
    return first_line(error)[:120]


class _Feed:
    """The file that the unpickler reads: one piece after another."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()

    def give(self, piece: bytes) -> None:
        size = (len(piece)).to_bytes(8, "little")
        self.stream = io.BytesIO(b"".join((b"\x80\x04", FRAME, size, piece)))

    def read(self, count: int, /) -> bytes:
        return self.stream.read(count)

    def readline(self) -> bytes:
        return self.stream.readline()


class _Plain(pickle.Unpickler):
    """An unpickler without classes, functions and references out of the file."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, reference: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


class _Reader:
    """Cuts the file into pieces and turns each into columns."""

    def __init__(self, opcodes: Opcodes, name: str) -> None:
        self.opcodes, self.name = opcodes, name
        self.feed = _Feed()
        self.unpickler = _Plain(self.feed)
        self.stacks = StackTable()
        self.traces: list[Columns] = []

    def snapshot(self) -> Snapshot:
        data = self._content()
        segments = data.get("segments")
        if not isinstance(segments, list) or not all(isinstance(row, dict) for row in segments):
            raise FileError(
                f"{self.name} is a pickle, but no memory snapshot: it has no list of segments; "
                "give a file of torch.cuda.memory._dump_snapshot."
            )
        settings = data.get("allocator_settings")
        return Snapshot(
            name=self.name,
            segments=tuple(self._segment(row) for row in segments),
            traces=tuple(columns.trace() for columns in self.traces),
            stacks=self.stacks.stacks,
            settings=settings if isinstance(settings, dict) else {},
        )

    def _content(self) -> dict[str, Any]:
        """What is at the file's top without the events, which go into columns on the way.

        An old file is the list of segments itself.
        """
        opcodes = self.opcodes
        if opcodes.peek() == b"]":
            return {"segments": self._items(until=STOP)[0]}
        if not opcodes.take(b"}"):
            opcodes.refuse_code()
            return {}
        self._skip_memo()
        items: list[Any] = []
        while not opcodes.take(STOP):
            is_group = opcodes.take(MARK)
            items += self._items(until=b"u" if is_group else b"s")
        return {key: value for key, value in zip(items[::2], items[1::2], strict=True)
                if isinstance(key, str)}  # fmt: skip

    def _items(self, until: bytes) -> list[Any]:
        """The values up to an opcode, which is passed over; of the events there is None."""
        opcodes, items = self.opcodes, []
        opcodes.begin_piece()
        while (opcode := opcodes.peek()) != until:
            if opcode == MARK:
                opcodes.take(MARK)
                opcodes.group()
            elif opcodes.one() in TRACES:
                items += self._load(b"(" + opcodes.piece() + b"l")
                self._skip_memo()
                self._devices()
                items.append(None)
                opcodes.begin_piece()
        items += self._load(b"(" + opcodes.piece() + b"l")
        opcodes.take(until)
        return items

    def _devices(self) -> None:
        """The list of lists of events, a list for each device."""
        opcodes = self.opcodes
        if not opcodes.take(b"]"):
            opcodes.refuse_code()
            raise pickle.UnpicklingError("its events are no list")
        self._skip_memo()
        is_open = False
        while True:
            if opcodes.take(b"]"):
                self._skip_memo()
                self._events()
            elif not is_open and opcodes.take(MARK):
                is_open = True
            elif is_open and opcodes.take(b"e"):
                is_open = False
            elif is_open or not opcodes.take(b"a"):
                break
        if is_open:
            raise pickle.UnpicklingError("its events are no lists")

    def _events(self) -> None:
        opcodes, columns = self.opcodes, Columns(self.stacks)
        self.traces.append(columns)
        while True:
            opcodes.begin_piece()
            opcode = opcodes.peek()
            if opcode == MARK:
                opcodes.take(MARK)
                opcodes.group()
                columns.add(self._load(b"]" + opcodes.piece()))
            elif opcode == b"}":
                while opcodes.one() != b"a":
                    if opcodes.peek() == MARK:
                        opcodes.take(MARK)
                        opcodes.group()
                columns.add(self._load(b"]" + opcodes.piece()))
            else:
                return

    def _load(self, piece: bytes) -> Any:
        self.feed.give(piece + STOP)
        return self.unpickler.load()

    def _skip_memo(self) -> None:
        """Nothing refers to the lists of events; a placeholder keeps the count of references."""
        self.opcodes.peek()
        self.opcodes.begin_piece()
        if self.opcodes.peek() in (MEMOIZE, b"q", b"r"):
            self.opcodes.one()
            self._load(b"N" + self.opcodes.piece())
        self.opcodes.begin_piece()

    def _segment(self, row: dict[str, Any]) -> Segment:
        address = row.get("address", 0)
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
