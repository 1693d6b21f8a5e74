"""Events, call stacks and numbers of a pickle as columns, each value checked on the way."""

from __future__ import annotations

from array import array
from typing import Any

import numpy

from .snapshot import CODES, OOM, OTHER, Trace
from .stacks import Frame, Stacks


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
    """The events of one device."""

    def __init__(self, stacks: StackTable) -> None:
        self.stacks = stacks
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
