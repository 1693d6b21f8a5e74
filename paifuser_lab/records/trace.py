"""The summary of a trace: time by operator, layer and kernel, and idle time."""

from __future__ import annotations

from collections.abc import Sequence

from .record import Record, TableRecord
from .table import Table
from .text import counted, in_figures, known, readable_bytes, three_figures

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


class TraceSummary(TableRecord):
    """Operators by self time, kernels, layers, and time lost to waiting."""

    text_columns = ("name", "layer")
    row_field = "operators"  # the largest self time first
    row_key = "name"

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
    def title(self) -> str:
        stopped = ", stopped early" if self.is_interrupted else ""
        return f"{self.name} · {in_figures(self.span_ms, 4)} ms · {self.events:,} events{stopped}"

    @property
    def facts(self) -> dict[str, str]:
        """Figures beside the operators; empty ones are left out."""
        waits = (
            f"{counted(self.synchronisations, 'call')}, {three_figures(self.synchronisation_ms)} ms"
        )
        facts = {
            "device idle": _percent(self.device_idle_ratio),
            "CPU outside operators": _percent(self.cpu_idle_ratio),
            "steps": str(self.steps or ""),
            "data loading": f"{three_figures(self.data_loading_ms)} ms"
            if self.data_loading_ms
            else "",
            "waiting for the device": waits if self.synchronisations else "",
            "values read back": str(self.value_reads or ""),
            "launches": str(self.launches or ""),
            **{f"copies, {copy.direction}": _copied(copy) for copy in self.copies},
            "events without a sound time": str(self.skipped or ""),
        }
        return known(facts)

    @property
    def captions(self) -> tuple[str, ...]:
        facts = (f"{label}: {fact}" for label, fact in self.facts.items())
        return (self.title, *facts, _heading("Operators by self time", self.operators))

    def table(self) -> list[dict[str, str]]:
        return [
            {
                "name": _clipped(row.name),
                "calls": str(row.calls),
                "self ms": _ms(row.self_ms),
                "total ms": _ms(row.total_ms),
                **self._on_device(row),
            }
            for row in self.operators[:MAX_ROWS]
        ]

    @property
    def sections(self) -> list[Table]:
        layers = [
            {
                "name": _clipped(f"{row.layer} ({row.type})".strip()),
                "calls": str(row.calls),
                "CPU ms": _ms(row.cpu_ms),
                **self._on_device(row),
            }
            for row in self.layers[:MAX_ROWS]
        ]
        kernels = [
            {
                "name": _clipped(row.name),
                "calls": str(row.calls),
                "device ms": _ms(row.device_ms),
                "layer": _layer_of(row),
            }
            for row in self.kernels[:MAX_ROWS]
        ]
        tables = (
            Table((_heading("Layers", self.layers),), layers, self.text_columns),
            Table((_heading("Kernels", self.kernels),), kernels, self.text_columns),
        )
        return [table for table in tables if table.rows]

    def _on_device(self, row: TracedOperator | TracedLayer) -> dict[str, str]:
        return {"device ms": _ms(row.device_ms)} if self.has_device else {}


def _heading(name: str, rows: Sequence[Record]) -> str:
    return f"{name} (the first {MAX_ROWS} of {len(rows)})" if len(rows) > MAX_ROWS else name


def _layer_of(kernel: TracedKernel) -> str:
    others = f" and {kernel.layer_count - 1} more" if kernel.layer_count > 1 else ""
    return "–" if kernel.layer is None else _clipped(kernel.layer) + others


def _clipped(name: str) -> str:
    """The name on a line, without its middle if it is long: kernels differ at their ends."""
    line = " ".join(name.split())
    end = MAX_NAME // 3
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - end - 1]}…{line[-end:]}"


def _copied(copy: TracedCopy) -> str:
    return (
        f"{copy.calls} of {readable_bytes(copy.bytes)} in all, {three_figures(copy.device_ms)} ms"
    )


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.0f}%"
