"""The events of a trace as columns: about forty bytes an event, each name kept once."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal
from enum import IntEnum
from math import isfinite, nan
from typing import Any

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


# Kineto's categories; Triton launches by the driver. Exports without Kineto have none.
KINDS = {
    **dict.fromkeys(("", "cpu_op"), Kind.OPERATOR),
    "user_annotation": Kind.ANNOTATION,
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "xpu_driver"), Kind.RUNTIME
    ),
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
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

    def __len__(self) -> int:
        return len(self.start)

    def add(self, event: Any) -> None:
        """Add an event; one without a valid time is skipped, one of another kind only seen."""
        self.seen += 1
        if not isinstance(event, dict):
            self.skipped += 1
            return
        name = str(event.get("name", ""))
        kind = _kind(name, event.get("cat"))
        if event.get("ph") != "X" or kind is None:
            return
        start, length = number(event.get("ts")), number(event.get("dur"))
        if not (isfinite(start) and isfinite(length) and length >= 0):
            self.skipped += 1
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        lane = (
            f"device {args.get('device', event.get('pid'))}"
            if kind >= Kind.KERNEL
            else f"{event.get('pid')} {event.get('tid')}"
        )
        self.start.append(start)
        self.length.append(length)
        self.kind.append(kind)
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.lane.append(self.lanes.setdefault(lane, len(self.lanes)))
        self.external.append(_identity(args.get("External id", args.get("external id"))))
        self.correlation.append(_identity(args.get("correlation")))
        if kind is Kind.COPY:
            self._count_copy(name, args, length)

    def _count_copy(self, name: str, args: dict[str, Any], length: float) -> None:
        direction = next((words for mark, words in DIRECTIONS.items() if mark in name), None)
        if direction:
            size = number(args.get("bytes", 0))
            counted = self.copied.setdefault(direction, [0, 0, 0.0])
            counted[0] += 1
            counted[1] += size if isfinite(size) else 0
            counted[2] += length


def number(value: Any) -> float:
    """A number of the file as a float; NaN for other values."""
    return float(value) if isinstance(value, int | float | Decimal) else nan


def layer_of(name: str) -> tuple[str, str]:
    """The dotted path and the type in a layer's annotation."""
    if match := LAYER_NAME.fullmatch(name):
        return match[1] or "", match[2]
    call = MODULE_CALL.fullmatch(name)
    return (name.removeprefix("nn.Module: "), call[1]) if call else (name, "")


def _kind(name: str, category: Any) -> Kind | None:
    if category == "python_function":
        return Kind.LAYER if name.startswith("nn.Module: ") else None
    kind = KINDS.get(str(category or ""))
    if kind is Kind.ANNOTATION or kind is Kind.OPERATOR:
        if name.startswith((DATA_LOADING, STEP)):  # operators in old versions of torch
            return Kind.ANNOTATION
        if kind is Kind.ANNOTATION and LAYER_NAME.fullmatch(name):
            return Kind.LAYER
    return kind


def _identity(value: Any) -> int:
    return value if type(value) is int and 0 < value < MAX_ID else 0
