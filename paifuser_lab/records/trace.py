"""The summary of a trace: time by operator, layer and kernel, and idle time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .record import Record, frame_of
from .text import counted, readable_bytes, text_table, view

if TYPE_CHECKING:
    import pandas

MAX_ROWS = 15
MAX_NAME = 60


class TracedOperator(Record):
    """An operator's CPU time without (self) and with (total) those it called; the device's too."""

    name: str
    calls: int
    self_ms: float
    total_ms: float
    device_self_ms: float = 0.0
    device_ms: float = 0.0


class TracedKernel(Record):
    """A device kernel; of the `layer_count` layers that ran it, `layer` spent most time in it."""

    name: str
    calls: int
    device_ms: float
    layer: str | None = None
    layer_count: int = 0


class TracedLayer(Record):
    """A layer with everything it called; the model itself is the layer ''."""

    layer: str
    type: str
    calls: int
    cpu_ms: float
    device_ms: float = 0.0


class TracedCopy(Record):
    """Copies in one direction between the host and the device."""

    direction: str
    calls: int
    bytes: int
    device_ms: float


class TraceSummary(Record):
    """Operators by self time, kernels, layers, and time lost to waiting."""

    name: str
    span_ms: float
    events: int
    skipped: int = 0
    steps: int = 0
    is_interrupted: bool = False
    has_device: bool = False
    operators: tuple[TracedOperator, ...] = ()
    kernels: tuple[TracedKernel, ...] = ()
    layers: tuple[TracedLayer, ...] = ()
    copies: tuple[TracedCopy, ...] = ()
    device_idle_ratio: float | None = None
    cpu_idle_ratio: float | None = None
    data_loading_ms: float = 0.0
    synchronisation_ms: float = 0.0
    synchronisations: int = 0
    value_reads: int = 0
    launches: int = 0

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per operator, as plain numbers, the largest self time first."""
        return frame_of(self.operators, "name", TracedOperator.model_fields)

    @property
    def title(self) -> str:
        """The trace's name, duration and number of events, in a line."""
        stopped = ", stopped early" if self.is_interrupted else ""
        return f"{self.name} · {self.span_ms:.4g} ms · {self.events:,} events{stopped}"

    @property
    def facts(self) -> dict[str, str]:
        """Figures beside the operators; empty ones are left out."""
        waits = f"{counted(self.synchronisations, 'call')}, {self.synchronisation_ms:.3g} ms"
        known = {
            "device idle": _percent(self.device_idle_ratio),
            "CPU outside operators": _percent(self.cpu_idle_ratio),
            "steps": str(self.steps or ""),
            "data loading": f"{self.data_loading_ms:.3g} ms" if self.data_loading_ms else "",
            "waiting for the device": waits if self.synchronisations else "",
            "values read back": str(self.value_reads or ""),
            "launches": str(self.launches or ""),
            **{f"copies, {copy.direction}": _copied(copy) for copy in self.copies},
            "events without a sound time": str(self.skipped or ""),
        }
        return {label: fact for label, fact in known.items() if fact}

    def __str__(self) -> str:
        lines = [self.title, *(f"  {label}: {fact}" for label, fact in self.facts.items())]
        for heading, rows in _tables(self):
            table = [{"name": row.short, **row.cells} for row in rows]
            lines += ["", heading, *text_table(table, ("name", "layer"))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [f"{label}: {fact}" for label, fact in self.facts.items()]
        return view("trace", self.title, facts, list(_tables(self)))


class _Row(NamedTuple):
    name: str
    value: float  # of its bar
    cells: dict[str, str]

    @property
    def short(self) -> str:
        return _clipped(self.name)


def _tables(summary: TraceSummary) -> Iterator[tuple[str, list[_Row]]]:
    """The heading and the rows to show of each non-empty table."""

    def cells(row: TracedOperator | TracedLayer | TracedKernel, **times: float) -> dict[str, str]:
        if summary.has_device or isinstance(row, TracedKernel):
            times["device_ms"] = row.device_ms
        named = {name.replace("_", " "): _ms(ms) for name, ms in times.items()}
        return {"calls": str(row.calls), **named}

    operators = [
        _Row(
            row.name, row.self_ms, cells(row, **{"self ms": row.self_ms, "total ms": row.total_ms})
        )
        for row in summary.operators[:MAX_ROWS]
    ]
    layers = [
        _Row(
            f"{row.layer} ({row.type})".strip(),
            row.device_ms if summary.has_device else row.cpu_ms,
            cells(row, CPU_ms=row.cpu_ms),
        )
        for row in summary.layers[:MAX_ROWS]
    ]
    kernels = [
        _Row(row.name, row.device_ms, {**cells(row), "layer": _layer_of(row)})
        for row in summary.kernels[:MAX_ROWS]
    ]
    for heading, rows, count in (
        ("Operators by self time", operators, len(summary.operators)),
        ("Layers", layers, len(summary.layers)),
        ("Kernels", kernels, len(summary.kernels)),
    ):
        more = f" (the first {len(rows)} of {count})" if len(rows) < count else ""
        if rows:
            yield heading + more, rows


def _layer_of(kernel: TracedKernel) -> str:
    others = f" and {kernel.layer_count - 1} more" if kernel.layer_count > 1 else ""
    return "–" if kernel.layer is None else _clipped(kernel.layer) + others


def _clipped(name: str) -> str:
    """The name on a line, without its middle if it is long: kernels differ at their ends."""
    line = " ".join(name.split())
    end = MAX_NAME // 3
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - end - 1]}…{line[-end:]}"


def _copied(copy: TracedCopy) -> str:
    return f"{copy.calls} of {readable_bytes(copy.bytes)} in all, {copy.device_ms:.3g} ms"


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.0f}%"
