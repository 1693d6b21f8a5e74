"""The summary of a trace: time by operator, layer and kernel, and idle time."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .record import Record
from .text import counted, readable_bytes, text_table

if TYPE_CHECKING:
    import pandas

MAX_ROWS = 15
MAX_NAME = 60


class TracedOperator(Record):
    """An operator: its CPU time without (self) and with (total) the operators it called, and the
    same on the device.
    """

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
        import pandas

        rows = [operator.model_dump() for operator in self.operators]
        return pandas.DataFrame(rows, columns=list(TracedOperator.model_fields)).set_index("name")

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
        for heading, rows, count in _tables(self):
            lines += ["", f"{heading}{_more(len(rows), count)}", *_text_table(rows)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        parts = (
            (len(self.operators), "operator"),
            (len(self.kernels), "kernel"),
            (len(self.layers), "layer"),
        )
        return (
            f"TraceSummary({self.name}: "
            f"{', '.join(counted(count, word) for count, word in parts if count)})"
        )

    def _repr_html_(self) -> str:
        facts = " · ".join(html.escape(f"{label}: {fact}") for label, fact in self.facts.items())
        tables = "".join(
            _html_table(f"{heading}{_more(len(rows), count)}", rows)
            for heading, rows, count in _tables(self)
        )
        return f"<div><p><b>{html.escape(self.title)}</b><br>{facts}</p>{tables}</div>"


Row = tuple[str, float, dict[str, str]]  # name, value of its bar, further columns


def _tables(summary: TraceSummary) -> Iterator[tuple[str, list[Row], int]]:
    """The heading, the rows to show and the total number of rows of each non-empty table."""
    has_device = summary.has_device
    operators = [
        (operator.name, operator.self_ms, _operator_columns(operator, has_device=has_device))
        for operator in summary.operators[:MAX_ROWS]
    ]
    layers = [
        (
            f"{layer.layer} ({layer.type})".strip(),
            layer.device_ms if has_device else layer.cpu_ms,
            _layer_columns(layer, has_device=has_device),
        )
        for layer in summary.layers[:MAX_ROWS]
    ]
    kernels = [
        (kernel.name, kernel.device_ms, _kernel_columns(kernel))
        for kernel in summary.kernels[:MAX_ROWS]
    ]
    all_tables = (
        ("Operators by self time", operators, len(summary.operators)),
        ("Layers", layers, len(summary.layers)),
        ("Kernels", kernels, len(summary.kernels)),
    )
    return (table for table in all_tables if table[1])


def _operator_columns(operator: TracedOperator, *, has_device: bool) -> dict[str, str]:
    columns = {
        "calls": str(operator.calls),
        "self ms": _ms(operator.self_ms),
        "total ms": _ms(operator.total_ms),
    }
    return {**columns, "device ms": _ms(operator.device_ms)} if has_device else columns


def _layer_columns(layer: TracedLayer, *, has_device: bool) -> dict[str, str]:
    columns = {"calls": str(layer.calls), "CPU ms": _ms(layer.cpu_ms)}
    return {**columns, "device ms": _ms(layer.device_ms)} if has_device else columns


def _kernel_columns(kernel: TracedKernel) -> dict[str, str]:
    others = f" and {kernel.layer_count - 1} more" if kernel.layer_count > 1 else ""
    layer = (
        {"layer": _clipped(kernel.layer) + others} if kernel.layer is not None else {"layer": "–"}
    )
    return {"calls": str(kernel.calls), "device ms": _ms(kernel.device_ms), **layer}


def _text_table(rows: list[Row]) -> list[str]:
    return text_table(
        [{"name": _clipped(name), **columns} for name, _, columns in rows], ("name", "layer")
    )


def _html_table(heading: str, rows: list[Row]) -> str:
    largest = max(value for _, value, _ in rows) or 1.0
    head = "".join(
        f'<th style="text-align:right">{html.escape(column)}</th>' for column in rows[0][2]
    )
    body = "".join(_html_row(name, value / largest, columns) for name, value, columns in rows)
    return (
        f'<table><caption style="text-align:left">{html.escape(heading)}</caption>'
        '<thead><tr><th style="text-align:left">name</th>'
        f'<th style="width:8em"></th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _html_row(name: str, share: float, columns: dict[str, str]) -> str:
    width = f"width:{100 * share:.1f}%"
    bar = f'<div style="{width};height:.6em;background:currentColor;opacity:.35"></div>'
    cells = "".join(
        f'<td style="text-align:right;white-space:nowrap">{html.escape(cell)}</td>'
        for cell in columns.values()
    )
    full, short = html.escape(name), html.escape(_clipped(name))
    label = f'<td style="text-align:left" title="{full}">{short}</td>'
    return f"<tr>{label}<td>{bar}</td>{cells}</tr>"


def _more(shown: int, count: int) -> str:
    return f" (the first {shown} of {count})" if shown < count else ""


def _clipped(name: str) -> str:
    """The name on one line, its middle cut out if it is long: kernel names of a family differ at
    their ends.
    """
    line = " ".join(name.split())
    end = MAX_NAME // 3
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - end - 1]}…{line[-end:]}"


def _copied(copy: TracedCopy) -> str:
    return f"{copy.calls} of {readable_bytes(copy.bytes)} in all, {copy.device_ms:.3g} ms"


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.0f}%"
