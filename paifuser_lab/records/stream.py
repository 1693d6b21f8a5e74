"""What a stream did: its speed, latencies, workers, and what went wrong on the way."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from .record import Record, TableRecord
from .table import Columns
from .text import counted, or_dash, readable_share

State = Literal["waiting", "running", "paused", "draining", "finished", "stopped", "failed"]
NodeState = Literal["starting", "up", "left", "lost"]
EventKind = Literal[
    "joined", "left", "lost", "hung", "hedged", "sent again", "corrupt", "set aside", "source"
]


class Latency(Record):
    """Percentiles of a duration in milliseconds, over the frames measured."""

    name: str
    p50_ms: float
    p95_ms: float
    p99_ms: float
    count: int


class StreamNode(Record):
    """One worker: where it runs, and what it has done."""

    name: str
    host: str = ""
    state: NodeState = "up"
    groups: int = 0
    frames: int = 0
    share: float = Field(default=0.0, ge=0, le=1)
    estimate_ms: float | None = None  # of a frame, from its latest groups
    in_flight: int = 0
    hedges: int = 0  # copies sent to it because another was late
    failures: int = 0


class StreamEvent(Record):
    """A mark on the time line: a hedge, a group sent again, a worker that came or went."""

    at_s: float
    kind: EventKind
    node: str = ""
    group: int | None = None
    text: str = ""


class SetAside(Record):
    """A frame without an answer, with the stage that failed on it."""

    index: int
    stage: str
    message: str


class StreamReport(TableRecord):
    """The statistics of a stream, while it runs or after its end.

    Counts are exact; percentiles are over the latest frames, and of events, rates, frames set aside
    and workers that are gone the latest are kept.
    """

    columns: ClassVar[Columns] = {
        "worker": "name",
        "host": "host",
        "state": "state",
        "frames": "frames",
        "share": lambda node: readable_share(node.share),
        "ms a frame": lambda node: or_dash(node.estimate_ms),
        "in flight": "in_flight",
        "hedges": "hedges",
        "failures": "failures",
    }
    row_field = "nodes"

    source: str
    engine: str
    state: State
    stages: tuple[str, ...] = ()
    sink: str = ""
    expected_frames: int | None = None
    frames: int = 0  # delivered, in order
    groups: int = 0
    elapsed_s: float = 0.0
    frames_per_s: float = 0.0
    latency: Latency | None = None  # from reading to delivering
    stage_latency: tuple[Latency, ...] = ()  # a frame in each stage, and "waiting"
    waiting_groups: int = 0  # read, not sent
    in_flight_groups: int = 0
    held_groups: int = 0  # answered, but an earlier one is missing or the reader is slow
    window: int = 0
    nodes: tuple[StreamNode, ...] = ()
    hedged: int = 0
    sent_again: int = 0
    duplicates: int = 0  # second answers, dropped
    corrupt: int = 0  # groups whose checksum did not match on arrival
    set_aside: int = 0
    lost_nodes: int = 0
    hung: int = 0
    source_restarts: int = 0
    longest_gap_ms: float = 0.0  # between deliveries
    resumed_at: int | None = None  # the first frame after a restart from the journal
    failures: tuple[SetAside, ...] = ()
    events: tuple[StreamEvent, ...] = ()
    rates: tuple[tuple[float, float], ...] = ()  # seconds since the start, frames a second
    message: str = ""

    @property
    def title(self) -> str:
        return " → ".join([self.source, *self.stages, *([self.sink] if self.sink else [])])

    @property
    def summary(self) -> str:
        """Speed, latency and what went wrong, in a sentence each."""
        frames = f"{self.state}: {counted(self.frames, 'frame')} in {self.elapsed_s:.1f} s"
        line = f"{frames}, {self.frames_per_s:.1f} a second"
        if self.latency:
            line += f", latency p50 {self.latency.p50_ms:.0f} ms, p95 {self.latency.p95_ms:.0f} ms"
        lines = [f"{line}."]
        marks = {
            "hedged": self.hedged,
            "sent again": self.sent_again,
            "workers lost": self.lost_nodes,
            "corrupt on arrival": self.corrupt,
            "set aside": self.set_aside,
        }
        if any(marks.values()):
            lines.append(", ".join(f"{number} {word}" for word, number in marks.items() if number))
        if self.message:
            lines.append(self.message)
        return "\n".join(lines)

    def table(self) -> list[dict[str, str]]:
        return super().table() or [{"worker": "none yet"}]

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.summary,)
