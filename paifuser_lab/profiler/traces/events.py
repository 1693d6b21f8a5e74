"""The events of a trace as columns: about forty bytes an event, each name kept once."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal
from enum import IntEnum
from math import inf, isfinite, nan
from typing import Any

from ...errors import FileError

MAX_EVENTS = 20_000_000
MAX_NAMES = 200_000
MAX_NAME_LENGTH = 2000
MAX_ID = 1 << 62

# as `profiler.trace` writes it; the model itself has no path
LAYER_NAME = re.compile(r"(?:(\S+) )?\((\w+)\)")
# as torch.profiler writes it with stacks
MODULE_CALL = re.compile(r"nn\.Module: (\w+?)(?:_\d+)?")


class Kind(IntEnum):
    """The kind of an event. Of two with the same times, the smaller kind encloses the larger."""

    ANNOTATION = 0
    LAYER = 1
    OPERATOR = 2
    RUNTIME = 3
    KERNEL = 4
    COPY = 5
    FILL = 6


# Category names differ by version: capitals until torch 1.12, and cuda_driver for launches by
# Triton. Old profilers wrote none.
KINDS = {
    **dict.fromkeys(("", "operator", "cpu_op"), Kind.OPERATOR),
    "user_annotation": Kind.ANNOTATION,
    **dict.fromkeys(
        ("runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "xpu_driver"),
        Kind.RUNTIME,
    ),
    "kernel": Kind.KERNEL,
    **dict.fromkeys(("memcpy", "gpu_memcpy"), Kind.COPY),
    **dict.fromkeys(("memset", "gpu_memset"), Kind.FILL),
}
DATA_LOADING = "enumerate(DataLoader)#"
STEP = "ProfilerStep#"
DIRECTIONS = {"HtoD": "host to device", "DtoH": "device to host"}


class Events:
    """Columns that grow event by event: times in µs, indices of names, ids that join events."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.seen = self.skipped = 0
        self.names: dict[str, int] = {}
        self.lanes: dict[str, int] = {}  # a thread of a process, or a device
        self.copied: dict[str, list[float]] = {}  # direction: calls, bytes, µs
        self.start, self.length = array("d"), array("d")
        self.name, self.lane, self.kind = array("i"), array("i"), array("b")
        self.external, self.correlation = array("q"), array("q")
        self._open: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.start)

    def add(self, event: Any) -> None:
        """Add an event; one without a valid time is skipped, one of another kind only seen."""
        self.seen += 1
        if not isinstance(event, dict):
            self.skipped += 1
            return
        phase = event.get("ph")
        if phase == "X":
            self._add(event, number(event.get("dur", nan)))
        elif phase == "B":
            self._open.setdefault(_thread(event), []).append(self._add(event, inf))
        elif phase == "E":
            self._close(event)

    def finish(self) -> None:
        """Count events that began and never ended; their length stays infinite."""
        self.skipped += sum(row >= 0 for rows in self._open.values() for row in rows)
        self._open.clear()

    def _add(self, event: dict[str, Any], length: float) -> int:
        name = str(event.get("name", ""))[:MAX_NAME_LENGTH]
        kind = _kind(name, event.get("cat"))
        if kind is None:
            return -1
        start = number(event.get("ts"))
        if not (isfinite(start) and length >= 0 and (isfinite(length) or event["ph"] == "B")):
            self.skipped += 1
            return -1
        if len(self.start) >= MAX_EVENTS:
            raise FileError(
                f"{self.file} holds more than {MAX_EVENTS:,} events; trace fewer steps."
            )
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        lane = (
            f"device {args.get('device', event.get('pid'))}"
            if kind >= Kind.KERNEL
            else _thread(event)
        )
        self.start.append(start)
        self.length.append(length)
        self.kind.append(kind)
        self.name.append(self._index_of(name, self.names))
        self.lane.append(self._index_of(lane, self.lanes))
        self.external.append(_identity(args.get("External id", args.get("external id"))))
        self.correlation.append(_identity(args.get("correlation")))
        if kind is Kind.COPY:
            self._count_copy(name, args, length)
        return len(self.start) - 1

    def _close(self, event: dict[str, Any]) -> None:
        rows = self._open.get(_thread(event))
        row = rows.pop() if rows else -1
        if row < 0:
            return
        length = number(event.get("ts")) - self.start[row]
        if isfinite(length) and length >= 0:
            self.length[row] = length
        else:
            self.skipped += 1

    def _index_of(self, name: str, indices: dict[str, int]) -> int:
        index = indices.get(name)
        if index is None:
            if len(indices) >= MAX_NAMES:
                raise FileError(
                    f"{self.file} holds more than {MAX_NAMES:,} different names; is it a trace of "
                    "a model?"
                )
            index = indices[name] = len(indices)
        return index

    def _count_copy(self, name: str, args: dict[str, Any], length: float) -> None:
        direction = next((words for mark, words in DIRECTIONS.items() if mark in name), None)
        if direction and isfinite(length):
            size = number(args.get("bytes", 0))
            counted = self.copied.setdefault(direction, [0, 0, 0.0])
            counted[0] += 1
            counted[1] += size if isfinite(size) else 0
            counted[2] += length


def number(value: Any) -> float:
    """A number of the file as a float; NaN for other values."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def layer_of(name: str) -> tuple[str, str]:
    """The dotted path and the type in a layer's annotation."""
    if match := LAYER_NAME.fullmatch(name):
        return match[1] or "", match[2]
    call = MODULE_CALL.fullmatch(name)
    return (name.removeprefix("nn.Module: "), call[1]) if call else (name, "")


def _kind(name: str, category: Any) -> Kind | None:
    if category == "python_function":
        return Kind.LAYER if name.startswith("nn.Module: ") else None
    kind = KINDS.get(str(category or "").lower())
    if kind is Kind.ANNOTATION or kind is Kind.OPERATOR:
        if name.startswith((DATA_LOADING, STEP)):  # operators in old versions of torch
            return Kind.ANNOTATION
        if kind is Kind.ANNOTATION and LAYER_NAME.fullmatch(name):
            return Kind.LAYER
    return kind


def _thread(event: dict[str, Any]) -> str:
    return f"{event.get('pid')} {event.get('tid')}"


def _identity(value: Any) -> int:
    return value if type(value) is int and 0 < value < MAX_ID else 0
