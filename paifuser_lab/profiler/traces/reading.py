"""Read a saved trace as a stream: a file of any size, plain or gzipped, is never in memory whole.

Built on ijson. A trace may come from anywhere, so a damaged or malicious file ends in one error:
endless values, endless nesting (ijson's memory grows with the square of the depth) and endlessly
many names are stopped.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import ijson
import numpy

from ...errors import FileError, first_line
from ...progress import progress
from ...records import TraceSummary
from .events import Events
from .summary import summary_of

CHUNK_BYTES = 1 << 16
MAX_DEPTH = 200
MAX_BYTES_WITHOUT_EVENT = 64 << 20
GZIP_MARK = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ESCAPED = re.compile(rb"\\.", re.DOTALL)
NOT_STRUCTURE = bytes(sorted(set(range(256)) - set(b'[]{}"')))


def read_trace(path: str | Path) -> TraceSummary:
    """Summarise a trace saved by torch.profiler, Kineto or another tool, also on another machine's
    GPU.

    `path` is a `.json` or `.json.gz` file; of a TensorBoard folder the newest trace is read.
    """
    file = _file_of(Path(path))
    return read_as(file, file.name)


def read_as(path: Path, name: str) -> TraceSummary:
    """Read a trace; messages and the summary call it `name`."""
    try:
        events = _read(path, name, is_exact=False)
        # Numbers beyond 64 bits are rare, and exact ones cost twice the time.
        events = events or _read(path, name, is_exact=True)
    except OSError as error:
        raise FileError(f"Cannot read {name}: {error.strerror or first_line(error)}.") from error
    if events is None or not len(events):
        raise FileError(
            f"{name} holds no operator, annotation or kernel with a time; save a trace with "
            "torch.profiler."
        )
    return summary_of(events)


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    traces = [
        file
        for pattern in ("*.json", "*.json.gz")
        for file in path.glob(pattern)
        if ".pt.trace.json" in file.name
    ]
    if not traces:
        raise FileError(
            f"{path} is a folder without a trace (*.pt.trace.json); give the trace's file."
        )
    return max(traces, key=lambda file: (file.stat().st_mtime_ns, file.name))


def _read(path: Path, name: str, *, is_exact: bool) -> Events | None:
    """The events of a file; None if a number is too large for the fast parser."""
    parser = _Parser(name, is_exact=is_exact)
    try:
        with closing(_chunks(path, name)) as chunks:
            for chunk in chunks:
                parser.feed(chunk)
        parser.finish()
    except ijson.JSONError as error:
        if not is_exact and "overflow" in str(error):
            return None
        where = f" after {parser.events.seen:,} events" if parser.events.seen else ""
        raise FileError(
            f"{name} is not JSON{where} ({_reason(error)}); was it damaged, or is it another kind "
            "of file?"
        ) from error
    return parser.events


def _chunks(path: Path, name: str) -> Generator[bytes, None, None]:
    """The file's text in chunks, with progress in bytes of the file."""
    with path.open("rb") as file, progress(f"Reading {name}", path.stat().st_size) as shown:
        is_gzip = (mark := file.read(2)) == GZIP_MARK
        if mark and not is_gzip and path.suffix == ".gz":
            raise FileError(
                f"{name} is no gzip file although its name says so; rename it to .json if it is "
                "plain text."
            )
        file.seek(0)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
        done = 0
        while chunk := _read_chunk(stream, name):
            yield chunk
            shown.advance(file.tell() - done)
            done = file.tell()


def _read_chunk(stream: BinaryIO, name: str) -> bytes:
    try:
        return stream.read(CHUNK_BYTES)
    except EOFError as error:
        raise FileError(
            f"{name} was cut short: its gzip data ends too early; copy it again."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            f"{name} is a damaged gzip file ({first_line(error)}); copy it again."
        ) from error


def _reason(error: ijson.JSONError) -> str:
    """The message of ijson, which is in bytes if the file is not UTF-8."""
    message = error.args[0] if error.args else ""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return text.strip().partition("\n")[0].rstrip(".") or type(error).__name__


class _Parser:
    """Parses chunks of text into events."""

    def __init__(self, name: str, *, is_exact: bool) -> None:
        self.name, self.is_exact = name, is_exact
        self.events = Events(name)
        self.depth = _Depth()
        self.parsed: list[Any] = ijson.sendable_list()
        self.parser: Any = None
        self.is_list = self.has_key = False
        self.tail = b""
        self.bytes_without_event = 0

    def feed(self, chunk: bytes) -> None:
        self.bytes_without_event += len(chunk)
        if self.parser is None and (chunk := chunk.removeprefix(BYTE_ORDER_MARK).lstrip()):
            self._begin(chunk)
        if chunk:
            self._parse(chunk)
        if self.bytes_without_event > MAX_BYTES_WITHOUT_EVENT:
            size = MAX_BYTES_WITHOUT_EVENT >> 20
            raise FileError(
                f"{self.name} goes on for {size} MiB without an event; is it a trace of "
                "torch.profiler?"
            )

    def _parse(self, chunk: bytes) -> None:
        if self.depth.deepest_of(chunk) > MAX_DEPTH:
            raise FileError(
                f"{self.name} nests values more than {MAX_DEPTH} deep, which no trace does; is it "
                "the right file?"
            )
        self.has_key = self.has_key or b'"traceEvents"' in self.tail + chunk
        self.tail = chunk[-16:]
        self.parser.send(chunk)
        self._take()

    def finish(self) -> None:
        if self.parser is None:
            raise FileError(f"{self.name} is empty; trace again, or copy it again.")
        try:
            self.parser.close()
        except ijson.JSONError as error:
            # A list of events may lack its last bracket: interrupted writers omit it, and viewers
            # accept that.
            if not (self.is_list and self.depth.now == 1 and not self.depth.is_in_string):
                raise FileError(
                    f"{self.name} was cut short after {self.events.seen:,} events; copy it again."
                ) from error
        self._take()
        if not (self.events.seen or self.has_key):
            raise FileError(
                f"{self.name} is JSON but no trace: it has no list of events ('traceEvents')."
            )
        if not self.events.seen:
            raise FileError(
                f"{self.name} is an empty trace: it holds no events; let the profiler run for a "
                "step."
            )
        self.events.finish()

    def _begin(self, chunk: bytes) -> None:
        self.is_list = chunk.startswith(b"[")
        prefix = "item" if self.is_list else "traceEvents.item"
        self.parser = ijson.items_coro(self.parsed, prefix, use_float=not self.is_exact)

    def _take(self) -> None:
        for event in self.parsed:
            self.events.add(event)
        self.bytes_without_event = 0 if self.parsed else self.bytes_without_event
        self.parsed.clear()


class _Depth:
    """The nesting depth of brackets at the end of each chunk, without strings."""

    def __init__(self) -> None:
        self.now = 0
        self.is_in_string = False
        self._half_escape = b""

    def deepest_of(self, chunk: bytes) -> int:
        """The deepest nesting within the next chunk."""
        text = self._half_escape + chunk
        self._half_escape = b""
        if b"\\" in text:
            text = ESCAPED.sub(b"", text)
            if text.endswith(b"\\"):
                text, self._half_escape = text[:-1], b"\\"
        parts = text.translate(None, NOT_STRUCTURE).split(b'"')
        brackets = b"".join(parts[self.is_in_string :: 2])
        self.is_in_string ^= len(parts) % 2 == 0
        if not brackets:
            return self.now
        codes = numpy.frombuffer(brackets, numpy.uint8)
        levels = self.now + numpy.cumsum(
            numpy.where((codes == ord("[")) | (codes == ord("{")), 1, -1)
        )
        self.now = int(levels[-1])
        return int(levels.max())
