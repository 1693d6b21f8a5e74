"""A search: what each candidate costs and brings, the best so far, and which choices mattered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..records import Candidate, readable_bytes
from ..records.text import readable_ms, readable_ratio
from .picture import Axis, Dots, Labels, Line, Mark, Panel, Picture, Rules, Texts, Tips

if TYPE_CHECKING:
    from ..planner.result import SearchResult

OF_GOAL = {
    "latency": ("latency, ms", "rate"),
    "throughput": ("latency, ms", "rate"),
    "size": ("size of the weights", "bytes"),
    "memory": ("peak memory of a call", "bytes"),
}
CHOICES = {"is_trained": "training", "keep": "channels"}  # other axes are called as they are
LEAST_IMPORTANCE = 0.005


def picture(search: SearchResult) -> Picture:
    """Loss against the goal; below it the best so far by seconds, and the choices' importance."""
    shown = [row for row in search.rows if row.loss is not None and _cost(search, row) > 0]
    below = [panel for panel in (_progress(search), _importance(search)) if panel is not None]
    rows = ((_frontier(search, shown),),) if shown else ()
    first = search.first
    sentence = f"{first.label}: {first.effect}" if first is not None else search.reason
    return Picture(
        title=search.title,
        label="candidates",
        sentence=sentence,
        note=search.note,
        rows=(*rows, *([tuple(below)] if below else [])),
        legend=(("good", "unbeaten"), ("faint", "beaten"), ("bad", "past a limit")),
        items=tuple((row.label, row.reason) for row in search.rows if row.status == "refused"),
    )


def _cost(search: SearchResult, row: Candidate) -> float:
    """What the goal makes small; 0 where it is not known."""
    if search.goal in ("latency", "throughput"):
        return row.latency_ms or 0.0
    return row.value(search.goal) or 0.0


def _before(search: SearchResult) -> float:
    known = {"size": search.baseline_size_bytes, "memory": search.baseline_peak_bytes}
    return known.get(search.goal, search.baseline_ms) or 0.0


def _frontier(search: SearchResult, rows: list[Candidate]) -> Panel:
    """A point per candidate; an even band at the bottom holds those that keep the output."""
    best = {row.label for row in search.frontier}
    name, readable = OF_GOAL[search.goal]
    costs, losses = [_cost(search, row) for row in rows], [row.loss or 0.0 for row in rows]
    before = _before(search)
    around = [*costs, *([before] if before else [])]
    kinds: dict[str, list[int]] = {"disc": [], "ring": [], "cross": []}
    for i, row in enumerate(rows):
        is_past = row.status == "outside the limits"
        kinds["disc" if row.label in best else "cross" if is_past else "ring"].append(i)
    tones = {"disc": "good", "ring": "faint", "cross": "bad"}
    line = sorted(kinds["disc"], key=lambda i: costs[i])
    marks: list[Mark] = [
        Line([costs[i] for i in line], [losses[i] for i in line], tone="good", is_stepped=True),
        Rules("y", [search.metric_drop], ["the loss that is allowed"], tone="bad", style="dashed"),
    ]
    if before:
        marks.append(Rules("x", [before], ["as it came"], tone="soft", style="dashed"))
    for shape, indices in kinds.items():
        marks.append(
            Dots(
                [costs[i] for i in indices],
                [losses[i] for i in indices],
                shape,  # type: ignore[arg-type]  # a key of the dict above
                tone=tones[shape],
                key=[rows[i].label for i in indices],
                tips=_tips([rows[i] for i in indices]),
            )
        )
    if (first := search.first) is not None and first in rows:
        at = rows.index(first)
        marks.append(Labels([costs[at]], [losses[at]], [first.label], lift=8, tone="ink"))
    metric = search.metric_name or "output error"
    loss = f"loss of {metric}" if search.metric_name else metric
    top = min(max([*losses, search.metric_drop, 1e-6]), 4 * max(search.metric_drop, 1e-6))
    y = Axis.linear(min([0.0, *losses]) - 0.05 * top, 1.1 * top, loss)
    cost = f"{name}{search.batches}"
    x = Axis.log(min(around) / 1.2, max(around) * 1.3, cost, readable)
    return Panel(x, y, tuple(marks), 260)


def _tips(rows: list[Candidate]) -> Tips:
    def line(row: Candidate) -> str:
        parts = [
            readable_ms(row.latency_ms) + " ms" if row.latency_ms else "",
            row.effect,
            "" if row.loss is None else f"loses {row.loss:.2g}",
            readable_bytes(row.size_bytes) if row.size_bytes else "",
            row.reason,
        ]
        return " · ".join(part for part in parts if part)

    return Tips([row.label for row in rows], [line(row) for row in rows])


def _progress(search: SearchResult) -> Panel | None:
    """The best within the limits so far, by the seconds at which it was measured."""
    before = _before(search)
    timed = (
        sorted((row.at_s, row) for row in search.ranked if row.at_s is not None) if before else []
    )
    if not timed:
        return None
    seconds, factors, best = [0.0], [1.0], 1.0
    for at, row in timed:
        cost = _cost(search, row)
        best = max(best, before / cost) if cost else best
        seconds.append(at)
        factors.append(best)
    seconds.append(max(search.took_s, seconds[-1]))
    factors.append(best)
    marks = (
        Rules("y", [1.0], ["as it came"], tone="soft", style="dashed"),
        Line(seconds, factors, is_stepped=True),
        Labels([seconds[-1]], [best], [f"{readable_ratio(best)} ×"], "left", 8, tone="ink"),
    )
    what = "times faster" if search.goal in ("latency", "throughput") else "times smaller"
    y = Axis.linear(0, max(1.15 * max(factors), 1.2), f"best so far, {what}")
    return Panel(Axis.linear(0, seconds[-1], "seconds"), y, marks, 190)


def _importance(search: SearchResult) -> Panel | None:
    """How much each choice explains which trials are in the better half, by Optuna."""
    shares = [
        (CHOICES.get(name, name), share)
        for name, share in search.importance.items()
        if share >= LEAST_IMPORTANCE and math.isfinite(share)
    ]
    if not shares:
        return None
    names: Texts = [name for name, _ in shares]
    values = [share for _, share in shares]
    texts = [f"{share:.0%}" for share in values]
    across = Axis.linear(0, 1.15 * max(values), "importance")
    return Panel.bars(names, values, texts, across, 190)
