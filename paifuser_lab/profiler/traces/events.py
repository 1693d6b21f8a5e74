"""The events of a trace as columns: about forty bytes an event, each name kept once."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal
from enum import IntEnum
from math import inf, isfinite, nan
from typing import Any

from ...errors import FileError

MOST_EVENTS = 20_000_000
MOST_NAMES = 200_000
LONGEST_NAME = 2000
LARGEST_ID = 1 << 62

LAYER_NAME = re.compile(
    r"(?:(\S+) )?\((\w+)\)"
)  # as `profiler.trace` writes it; the model itself has no path
MODULE_CALL = re.compile(
    r"nn\.Module: (\w+?)(?:_\d+)?"
)  # as torch.profiler writes it when it is asked for stacks


class Kind(IntEnum):
    """What an event is. Of two events with the same times, the smaller kind is around the
    larger.
    """

    ANNOTATION = 0
    LAYER = 1
    OPERATOR = 2
    RUNTIME = 3
    KERNEL = 4
    COPY = 5
    FILL = 6


# Category names differ by version: capitals until torch 1.12, and cuda_driver where Triton
# launches. The profiler of old wrote none.
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
    """Columns that grow by an event at a time: times in µs, numbers for names, and what joins
    kernels to operators.
    """

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
        """Take an event in; one without a sound time is counted as skipped, one of no interest to
        us only as seen.
        """
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
        """Count what was begun and never ended; its length stays infinite and a reader leaves it
        out.
        """
        self.skipped += sum(row >= 0 for rows in self._open.values() for row in rows)
        self._open.clear()

    def _add(self, event: dict[str, Any], length: float) -> int:
        name = str(event.get("name", ""))[:LONGEST_NAME]
        kind = _kind(name, event.get("cat"))
        if kind is None:
            return -1
        start = number(event.get("ts"))
        if not (isfinite(start) and length >= 0 and (isfinite(length) or event["ph"] == "B")):
            self.skipped += 1
            return -1
        if len(self.start) >= MOST_EVENTS:
            raise FileError(
                f"{self.file} holds more than {MOST_EVENTS:,} events; trace fewer steps."
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
        self.name.append(self._number_of(name, self.names))
        self.lane.append(self._number_of(lane, self.lanes))
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

    def _number_of(self, name: str, numbers: dict[str, int]) -> int:
        found = numbers.get(name)
        if found is None:
            if len(numbers) >= MOST_NAMES:
                raise FileError(
                    f"{self.file} holds more than {MOST_NAMES:,} different names; is it a trace of "
                    "a model?"
                )
            found = numbers[name] = len(numbers)
        return found

    def _count_copy(self, name: str, args: dict[str, Any], length: float) -> None:
        direction = next((words for mark, words in DIRECTIONS.items() if mark in name), None)
        if direction and isfinite(length):
            size = number(args.get("bytes", 0))
            counted = self.copied.setdefault(direction, [0, 0, 0.0])
            counted[0] += 1
            counted[1] += size if isfinite(size) else 0
            counted[2] += length


def number(value: Any) -> float:
    """A number of the file as a float; NaN for what is none."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def layer_of(name: str) -> tuple[str, str]:
    """The dotted path and the type that an annotation of a layer names."""
    if found := LAYER_NAME.fullmatch(name):
        return found[1] or "", found[2]
    call = MODULE_CALL.fullmatch(name)
    return (name.removeprefix("nn.Module: "), call[1]) if call else (name, "")


def _kind(name: str, category: Any) -> Kind | None:
    if category == "python_function":
        return Kind.LAYER if name.startswith("nn.Module: ") else None
    kind = KINDS.get(str(category or "").lower())
    if kind is Kind.ANNOTATION or kind is Kind.OPERATOR:
        if name.startswith((DATA_LOADING, STEP)):  # operators, to the torch of old
            return Kind.ANNOTATION
        if kind is Kind.ANNOTATION and LAYER_NAME.fullmatch(name):
            return Kind.LAYER
    return kind


def _thread(event: dict[str, Any]) -> str:
    return f"{event.get('pid')} {event.get('tid')}"


def _identity(value: Any) -> int:
    return value if type(value) is int and 0 < value < LARGEST_ID else 0
