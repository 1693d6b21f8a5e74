"""How long a large memory snapshot takes to read and analyse, and how much memory: a file is
generated, read in a process of its own (`python -m benchmarks.memory_snapshot FILE`), and
deleted.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from pydantic import Field

from paifuser_lab.bench.runner import BenchRecord
from paifuser_lab.measure import peak_resident_bytes
from paifuser_lab.records import readable_bytes

from .child import printed

LIMIT_S = 1800.0
SEGMENTS, SEGMENT_BYTES, BLOCK_BYTES = 64, 20 << 20, 1 << 20
FIRST_ADDRESS, FIRST_US = 0x7F0000000000, 1_700_000_000_000_000
STACKS, DEPTH, FRAMES = 3000, 24, 4000
GROUP = 1000  # events that Python's pickler writes together
ACTIONS = ("alloc", "free_requested", "free_completed")


class SnapshotReading(BenchRecord):
    """The result of `python -m benchmarks memory-snapshot`."""

    file_bytes: int = Field(gt=0)
    events: int
    seconds: float  # to read the file
    analysed_seconds: float  # to make the record of what was read
    cpu_seconds: float  # of both
    peak_bytes: int | None  # the most that was resident, Python and torch included
    before_bytes: int | None = None  # what was resident before the file was opened

    @property
    def title(self) -> str:
        return f"a memory snapshot of {readable_bytes(self.file_bytes)} on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """One row."""
        return [
            {
                "events": f"{self.events:,}",
                "read, s": f"{self.seconds:.1f}",
                "analysed, s": f"{self.analysed_seconds:.1f}",
                "CPU, s": f"{self.cpu_seconds:.1f}",
                "resident at most": readable_bytes(self.peak_bytes),
                "before": readable_bytes(self.before_bytes),
            }
        ]


def bench(
    *, gigabytes: Annotated[float, typer.Option(help="The size of the file.", min=0.001)] = 1.0
) -> SnapshotReading:
    """Generate a memory snapshot, and measure how long and how much memory reading it takes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "generated.pickle"
        write_snapshot(path, int(gigabytes * 1e9))
        words = ["-m", __name__, str(path)]
        lines = printed("Reading the snapshot", words, limit_s=LIMIT_S)
        measured = json.loads(lines[-1])
        return SnapshotReading(file_bytes=path.stat().st_size, **measured)


def write_snapshot(path: Path, at_least: int, seed: int = 0) -> int:
    """Write a pickle as `torch.cuda.memory._dump_snapshot` does, piece by piece; its events.

    Blocks of a megabyte come and go in segments that stay; each event has a stack of shared frames,
    and every dictionary, list and text has a place in the pickle's table of references.
    """
    draw = random.Random(seed)
    events = 0
    with path.open("wb") as file:
        file.write(b"\x80\x04}(" + _plain("segments") + _plain(list(_segments())))
        file.write(_plain("device_traces") + b"](](")
        writer = _Writer(draw)
        while file.tell() < at_least:
            for _ in range(GROUP):
                file.write(writer.event(events))
                events += 1
            file.write(b"e(")
        file.write(b"ee" + _plain("allocator_settings") + _plain({"max_split_size": -1}) + b"u.")
    return events


def _segments() -> Iterator[dict[str, Any]]:
    for index in range(SEGMENTS):
        address = FIRST_ADDRESS + index * SEGMENT_BYTES
        yield {
            "device": 0,
            "address": address,
            "total_size": SEGMENT_BYTES,
            "stream": 0,
            "segment_type": "large",
            "is_expandable": False,
            "blocks": [
                {
                    "address": address,
                    "size": SEGMENT_BYTES,
                    "requested_size": 0,
                    "state": "inactive",
                    "frames": [],
                }
            ],
        }


class _Writer:
    """The bytes of events; what occurs again is a reference, numbered as it was first written."""

    def __init__(self, draw: random.Random) -> None:
        self._number = 0  # the references so far
        self._known: dict[Any, int] = {}
        places = range(SEGMENTS * (SEGMENT_BYTES // BLOCK_BYTES))
        self._addresses = [FIRST_ADDRESS + place * BLOCK_BYTES for place in places]
        self._stacks = [draw.sample(range(FRAMES), DEPTH) for _ in range(STACKS)]

    def event(self, index: int) -> bytes:
        """The pickled event of this number."""
        turn, action = divmod(index, len(ACTIONS))
        stack = self._stacks[turn % STACKS]
        return b"".join(
            (
                b"}" + self._memo() + b"(",
                self._text("action") + self._text(ACTIONS[action]),
                self._text("addr") + _long(self._addresses[turn % len(self._addresses)]),
                self._text("size") + b"J" + struct.pack("<i", BLOCK_BYTES),
                self._text("stream") + b"K\x00",
                self._text("time_us") + _long(FIRST_US + index),
                self._text("frames") + b"]" + self._memo() + b"(",
                *(self._frame(number) for number in stack),
                b"eu",
            )
        )

    def _frame(self, number: int) -> bytes:
        if number in self._known:
            return _reference(self._known[number])
        written = b"}" + self._memo(number) + b"("
        written += self._text("name") + _plain(f"forward_{number}")
        written += self._text("filename") + _plain(f"/home/user/work/part_{number % 50}.py")
        return written + self._text("line") + b"M" + struct.pack("<H", number) + b"u"

    def _text(self, text: str) -> bytes:
        if text in self._known:
            return _reference(self._known[text])
        return _plain(text) + self._memo(text)

    def _memo(self, key: Any = None) -> bytes:
        if key is not None:
            self._known[key] = self._number
        self._number += 1
        return b"\x94"


def _reference(number: int) -> bytes:
    return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)


def _long(number: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", number)


def _plain(value: Any) -> bytes:
    """The pickle of a value without references, to stand inside another one."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=3)
    pickler.fast = True
    pickler.dump(value)
    return stream.getvalue()[2:-1]


def main(path: str) -> None:
    """Read and analyse the file, and print the figures."""
    from paifuser_lab.memory.snapshots import memory_snapshot, read_snapshot

    before, began, cpu = peak_resident_bytes(), time.perf_counter(), time.process_time()
    snapshot = read_snapshot(path)
    read = time.perf_counter()
    record = memory_snapshot(snapshot)
    measured = {
        "events": record.events,
        "seconds": read - began,
        "analysed_seconds": time.perf_counter() - read,
        "cpu_seconds": time.process_time() - cpu,
        "peak_bytes": peak_resident_bytes(),
        "before_bytes": before,
    }
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
