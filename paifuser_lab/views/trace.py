"""Where the time of a trace went: busy shares on top, the costliest operators below."""

from __future__ import annotations

from ..records import TracedOperator, TraceSummary
from ..records.text import three_figures
from .picture import Axis, Boxes, Labels, Panel, Picture

MAX_OPERATORS = 10
ROW = 26  # pixels


def picture(summary: TraceSummary) -> Picture:
    """A stacked bar for the main thread and the device, then the operators with most time."""
    by_time = sorted(summary.operators, key=lambda operator: -_self_ms(operator, summary))
    operators, busy = by_time[:MAX_OPERATORS], _busy(summary)
    above = ((_shares(busy),),) if busy else ()
    below = ((_times(summary, operators),),) if operators else ()
    return Picture(summary.title, "where the time went", (*above, *below))


def _busy(summary: TraceSummary) -> dict[str, float]:
    known = {"main thread": summary.cpu_idle_ratio, "device": summary.device_idle_ratio}
    return {name: 1 - idle for name, idle in known.items() if idle is not None}


def _shares(busy: dict[str, float]) -> Panel:
    at, shares = range(len(busy)), list(busy.values())
    doing = {"main thread": ("in operators", "outside"), "device": ("in kernels", "idle")}
    texts = [
        f"{100 * share:.0f}% {doing[name][0]}, {100 - 100 * share:.0f}% {doing[name][1]}"
        for name, share in busy.items()
    ]
    marks = (
        Boxes.in_rows([0.0] * len(at), shares, tone="good"),
        Boxes.in_rows(shares, [1.0] * len(at), tone="soft", is_tint=True),
        Labels([1.0] * len(at), at, texts, tone="ink"),
    )
    return Panel(Axis(0, 1.9), Axis.band(list(busy)), marks, 20 + ROW * len(at))


def _times(summary: TraceSummary, operators: list[TracedOperator]) -> Panel:
    times = [_self_ms(row, summary) for row in operators]
    texts = [
        f"{three_figures(ms)} ms · {row.calls} ×" for ms, row in zip(times, operators, strict=True)
    ]
    where = "what it started on the device" if summary.has_device else "self time on the CPU"
    across = Axis.linear(0, 1.35 * (max(times) or 1.0), f"ms by operator, {where}")
    names = [" ".join(row.name.split()) for row in operators]
    return Panel.bars(names, times, texts, across, 46 + ROW * len(operators))


def _self_ms(operator: TracedOperator, summary: TraceSummary) -> float:
    return operator.device_self_ms if summary.has_device else operator.self_ms
