"""Where the time of a trace went: busy shares on top, the costliest operators below."""

from __future__ import annotations

from typing import Any

from ..records import TracedOperator, TraceSummary
from .style import Drawing, Plot, blank

MAX_OPERATORS = 10
MAX_NAME = 46


def draw(summary: TraceSummary, *, dark: bool = False) -> Drawing:
    """A stacked bar for the main thread and the device, then the operators with most time."""
    stacks = _stacks(summary)
    operators = sorted(summary.operators, key=lambda operator: -_self_ms(operator, summary))[
        :MAX_OPERATORS
    ]
    height = 1.0 + 0.42 * len(stacks) + 0.36 * len(operators)
    axes = blank(summary.title, height=height, dark=dark)
    widest = max([_self_ms(operator, summary) for operator in operators], default=0.0) or 1.0
    for y, (label, busy) in enumerate(stacks):
        _draw_stack(axes, y - 1.3 * len(stacks) + 0.1, label, busy, width=1.3 * widest)
    for y, operator in enumerate(operators):
        self_ms = _self_ms(operator, summary)
        axes.barh(y, self_ms, height=0.3, color=axes.theme.main, linewidth=0)
        label = f"{_clipped(operator.name)} · {self_ms:.3g} ms · {operator.calls} ×"
        axes.note(label, (0, y), (1, 8))
    axes.set_yticks([])
    axes.set_ylim(len(operators) - 0.4, -1.3 * len(stacks) - 0.6)
    axes.set_xlim(0, 1.3 * widest)
    where = "what it started on the device" if summary.has_device else "self time on the CPU"
    axes.label(x=f"ms by operator, {where}")
    return axes.drawing


def _stacks(summary: TraceSummary) -> list[tuple[str, float]]:
    stacks = []
    if summary.cpu_idle_ratio is not None:
        busy = 1 - summary.cpu_idle_ratio
        stacks.append(
            (f"main thread: {100 * busy:.0f}% in operators, {100 - 100 * busy:.0f}% outside", busy)
        )
    if summary.device_idle_ratio is not None:
        busy = 1 - summary.device_idle_ratio
        stacks.append((f"device: {100 * busy:.0f}% in kernels, {100 - 100 * busy:.0f}% idle", busy))
    return stacks


def _draw_stack(axes: Plot, y: float, label: str, busy: float, *, width: float) -> None:
    theme = axes.theme
    idle: dict[str, Any] = {"left": busy * width, "color": theme.faint, "alpha": 0.35}
    axes.barh(y, busy * width, height=0.45, color=theme.good, linewidth=0)
    axes.barh(y, (1 - busy) * width, height=0.45, linewidth=0, **idle)
    axes.note(label, (0, y), (1, 9))


def _self_ms(operator: TracedOperator, summary: TraceSummary) -> float:
    return operator.device_self_ms if summary.has_device else operator.self_ms


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + "…"
