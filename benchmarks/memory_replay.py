"""Recorded memory snapshots replayed: how near the simulated allocator comes to theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, ClassVar

import typer

from paifuser_lab.bench.runner import BenchRecord, Columns, measured_rows
from paifuser_lab.memory.snapshots import read_snapshot, replay
from paifuser_lab.memory.snapshots.snapshot import Snapshot, reserved_bytes
from paifuser_lab.records import Record, readable_bytes


class ReplayedSnapshot(Record):
    """A snapshot's recorded peak of reserved bytes, and the simulated one."""

    name: str
    settings: str
    requests: int
    recorded_bytes: int
    replayed_bytes: int
    grown_bytes: int = 0  # by how much the reserved bytes grew while it was recorded

    @property
    def ratio(self) -> float:
        """Simulated over recorded."""
        return self.replayed_bytes / max(1, self.recorded_bytes)

    @property
    def has_growth(self) -> bool:
        """Whether segments were taken while it was recorded; else they are from earlier requests,
        which cannot be replayed.
        """
        return self.grown_bytes > 0


class ReplayBench(BenchRecord):
    """The result of `python -m benchmarks memory-replay`."""

    caption = "peak reserved bytes: simulated / recorded"
    machine: str = ""  # of no matter
    rows: tuple[ReplayedSnapshot, ...]
    columns: ClassVar[Columns] = {
        "snapshot": "name",
        "settings": "settings",
        "requests": lambda row: f"{row.requests:,}",
        "recorded": lambda row: readable_bytes(row.recorded_bytes),
        "simulated": lambda row: readable_bytes(row.replayed_bytes),
        "ratio": lambda row: f"{row.ratio:.4f}",
        "grown": lambda row: readable_bytes(row.grown_bytes),
    }

    @property
    def settings(self) -> str:
        """The settings of all snapshots."""
        return " and ".join(sorted({f"`{row.settings}`" for row in self.rows}))

    @property
    def summary(self) -> str:
        """How near the simulator is, and the failures, a line each."""
        lines = self.failed
        if late := [row for row in self.rows if not row.has_growth]:
            lines.insert(0, f"recorded after all segments were taken: {_ratios(late)}")
        if grown := [row for row in self.rows if row.has_growth]:
            lines.insert(0, _ratios(grown))
        return "\n".join(lines)


def _ratios(rows: Sequence[ReplayedSnapshot]) -> str:
    ratios = sorted(row.ratio for row in rows)
    equal = sum(row.replayed_bytes == row.recorded_bytes for row in rows)
    return (
        f"{equal} of {len(ratios)} equal to the byte; ratios from {ratios[0]:.4f} to "
        f"{ratios[-1]:.4f}, median {median(ratios):.4f}"
    )


def bench(
    files: Annotated[list[Path], typer.Argument(help="Files of torch.cuda.memory._dump_snapshot.")],
) -> ReplayBench:
    """Replay recorded snapshots, and compare the simulated peak of reserved bytes with theirs."""
    return ReplayBench(**measured_rows([str(path) for path in files], _replayed, "snapshots"))


def _replayed(path: str) -> list[ReplayedSnapshot]:
    snapshot = read_snapshot(path)
    replayed = replay(snapshot, ())
    own = replayed.rows[0]
    return [
        ReplayedSnapshot(
            name=Path(path).name,
            settings=own.settings,
            requests=replayed.requests,
            recorded_bytes=replayed.recorded_peak_reserved_bytes,
            replayed_bytes=own.peak_reserved_bytes,
            grown_bytes=_grown_bytes(snapshot),
        )
    ]


def _grown_bytes(snapshot: Snapshot) -> int:
    """The peak of the reserved bytes beyond those after the first event."""
    device = snapshot.device()
    reserved = reserved_bytes(snapshot.trace(device), snapshot.segments_of(device))
    return int(reserved.max() - reserved[0]) if len(reserved) else 0
