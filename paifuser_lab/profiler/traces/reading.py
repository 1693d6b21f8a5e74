"""Read a saved trace of any size, plain or gzipped, as a stream: it is never in memory whole."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import ijson

from ...errors import FileError, first_line
from ...progress import progress
from ...records import TraceSummary
from .events import Events
from .summary import summary_of

GZIP_MARK = b"\x1f\x8b"
EVENTS_PER_UPDATE = 10_000  # of the progress


def read_trace(path: str | Path) -> TraceSummary:
    """Summarise a trace of torch.profiler, Kineto or another tool, also of another machine's GPU.

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
    if not events:
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
    events = Events(name)
    try:
        with path.open("rb") as file, progress(f"Reading {name}", path.stat().st_size) as shown:
            # a bare list of events begins with a bracket
            is_list, done = _plain(file).read(1024).lstrip().startswith(b"["), 0
            prefix = "item" if is_list else "traceEvents.item"
            for event in ijson.items(_plain(file), prefix, use_float=not is_exact):
                events.add(event)
                if events.seen % EVENTS_PER_UPDATE == 0:
                    shown.advance(file.tell() - done)
                    done = file.tell()
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            f"{name} is a damaged gzip file ({first_line(error)}); copy it again."
        ) from error
    except (EOFError, UnicodeDecodeError, ijson.JSONError) as error:
        if not is_exact and "overflow" in str(error):
            return None
        if isinstance(error, EOFError) or "premature EOF" in str(error):
            what = "was cut short after {:,} events; copy it again"
        else:
            what = "is not JSON after {:,} events; it is damaged, or another kind of file"
        raise FileError(f"{name} {what.format(events.seen)}.") from error
    return events


def _plain(file: BinaryIO) -> BinaryIO:
    """The text of a file, gzipped or not, from its beginning."""
    file.seek(0)
    is_gzip = file.read(len(GZIP_MARK)) == GZIP_MARK
    file.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
