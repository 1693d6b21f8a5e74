"""A group on its way: its answers so far, and how it is sent after workers have died on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .result import Result
from .source import Group
from .stage import FrameError
from .worker import Answer

# Workers that die on a group before its frames are sent one at a time, and then on a frame: the
# first answer of a worker that dies may be lost with it, so one death proves nothing.
DEATHS = 2
CORRUPT = 3  # arrivals with a wrong checksum before its frames are set aside


@dataclass
class Work:
    """One group between reading and delivering.

    `parts` is None while the group is sent whole. After two workers have died on it, its frames are
    sent one at a time, so that only the one that kills is set aside; before them, if the first
    stage decodes, comes an empty part that only decodes.
    """

    group: Group
    read_at: float
    decodes: bool = False
    sent_at: float = 0.0
    deaths: int = 0
    part_deaths: int = 0
    arrived_corrupt: int = 0
    parts: list[tuple[int, ...]] | None = None
    values: dict[int, Any] = field(default_factory=dict)
    node: str = ""

    @property
    def next_part(self) -> tuple[int, ...] | None:
        """The frames to ask a worker for; None for all."""
        return self.parts[0] if self.parts else None

    @property
    def is_complete(self) -> bool:
        """Whether every frame has a value or an error."""
        return len(self.values) == self.group.count

    def take(self, node: str, offsets: tuple[int, ...] | None, answer: Answer) -> bool:
        """Keep an answer; returns whether it brought anything new."""
        if self.is_complete or (offsets is not None and offsets not in (self.parts or ())):
            return False
        self.node = node
        frames = range(self.group.count) if offsets is None else offsets
        for offset, value in zip(frames, answer.values, strict=True):
            self.values.setdefault(offset, value)
        if self.parts and offsets is not None:
            self.parts.remove(offsets)
            self.part_deaths = 0
        return True

    def death(self, reason: str) -> None:
        """A worker died or hung while it had the group."""
        self.deaths += 1
        if self.parts:
            self.part_deaths += 1
            if self.part_deaths < DEATHS:
                return
            self.part_deaths = 0
            part = self.parts.pop(0)
            self._fail(part if part else range(self.group.count), reason)
        elif self.deaths >= DEATHS and self.group.count == 1 and not self.decodes:
            self._fail((0,), reason)
        elif self.deaths >= DEATHS:
            singles = [(offset,) for offset in range(self.group.count)]
            self.parts = [(), *singles] if self.decodes else [*singles]

    def corrupt(self) -> None:
        """It arrived with another checksum."""
        self.arrived_corrupt += 1
        if self.arrived_corrupt >= CORRUPT:
            self._fail(
                range(self.group.count), f"its bytes arrived changed {CORRUPT} times in a row"
            )

    def results(self, now: float) -> tuple[Result, ...]:
        """The results of its frames, in order."""
        latency_ms = 1e3 * (now - self.read_at)
        return tuple(
            Result(self.group.first + offset, None, latency_ms, self.node, value)
            if isinstance(value := self.values[offset], FrameError)
            else Result(self.group.first + offset, value, latency_ms, self.node)
            for offset in range(self.group.count)
        )

    def _fail(self, offsets: Any, reason: str) -> None:
        for offset in offsets:
            self.values.setdefault(offset, FrameError("worker", reason))
