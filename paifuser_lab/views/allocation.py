"""The Pareto frontier of formats, uniform formats and measured points: latency or size by loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from ..records import Achieved, Allocation, AllocationPoint
from ..records.text import readable_ms
from .heat_scale import Scale, cell_text, estimate_text, scale_of
from .label_room import Box, Room, offsets
from .picture import (
    Axis,
    Boxes,
    Dots,
    Key,
    Line,
    Mark,
    Names,
    Panel,
    Picture,
    Rules,
    Side,
    Style,
    Tips,
    Values,
    in_bytes,
    log_ticks,
)

HEIGHT, WIDE, FRAME = 330, 520, 60  # pixels: the panel, where names are placed, its axes
BAND = 0.1  # of the height: losses of zero or less have no place on a logarithmic axis
SAME = 1 - 1e-6
Row = dict[str, str]


def picture(allocation: Allocation) -> Picture:
    """The frontier as steps, diamonds for uniform formats, rings where a point was measured."""
    points = allocation.everything
    unit = _Losses(allocation)
    x = _across(allocation)
    spots = [_place(allocation, point) for point in points]
    rows = [unit.on_axis(loss) for _, loss in spots]
    xs, count = [at for at, _ in spots], len(allocation.points)
    kinds = range(len(points))
    achieved = [
        (xs[index], rows[index], *place)
        for index, point in enumerate(points)
        if (place := _achieved_place(allocation, point, unit)) is not None
    ]
    best = allocation.chosen
    rules = _rules(allocation, x, unit)
    marks: tuple[Mark, ...] = (
        *_beyond(allocation, x, unit),
        Boxes([x.low], [x.high], [unit.low], [unit.band], tone="ink", is_tint=True),
        *rules,
        Line(*_links(achieved), tone="soft", width=0.8),
        Line(xs[:count], rows[:count], is_stepped=True, width=1.4),
        Dots([place[2] for place in achieved], [place[3] for place in achieved], "ring",
             tone="bad"),
        Dots([xs[best]], [rows[best]], "ring", 13.0, tone="good"),
        _names(allocation, x, unit, list(zip(xs, rows, strict=True))),
        Dots(
            xs,
            rows,
            ["disc" if index < count else "diamond" for index in kinds],
            reach=[unit.on_axis(point.loss + point.loss_error) for point in points],
            tone=["main" if index < count else "soft" for index in kinds],
            key=[str(index) for index in kinds],
            tips=_tips(allocation),
        ),
    )  # fmt: skip
    reason, *notes = allocation.remarks
    return Picture(
        title=allocation.title,
        label=f"{len(points)} choices of formats, the frontier first; arrow keys go through them, "
        "Enter chooses",
        sentence=reason,
        note=" · ".join(notes),
        rows=((Panel(x, unit.axis, marks, HEIGHT),),),
        legend=(
            Key("main", "frontier, predicted", "disc"),
            *([Key("soft", "one format for all", "diamond")] if allocation.uniform else []),
            *([Key("bad", "achieved", "ring")] if achieved else []),
            Key("good", "best for what was asked", "ring"),
        ),
    )


def compared_rows(allocation: Allocation, point: AllocationPoint) -> list[Row]:
    """A point's quantities, predicted and, in proportion to the plan's baseline, achieved."""
    base, real = allocation.baseline_ms, point.achieved
    speed = base / point.latency_ms
    reached = None if real is None else real.baseline_ms / real.latency_ms
    rows = [
        _row("latency", point.latency_ms, None if reached is None else base / reached, _in_ms),
        _row("speed-up", speed, reached, "{:.2f} ×".format),
        {
            "name": _quantity(allocation),
            "predicted": _estimate(point),
            "achieved": "" if real is None else _estimate(real),
            "error": _gap(point, real),
        },
        _row("size", point.size_bytes, None if real is None else real.size_bytes, in_bytes),
    ]
    if real is not None and real.metric is not None:
        rows.append(
            {"name": "metric", "predicted": "", "achieved": f"{real.metric:.4g}", "error": ""}
        )
    return rows


class _Losses:
    """The axis of losses: logarithmic, with a band at the bottom for those below its ticks."""

    def __init__(self, allocation: Allocation) -> None:
        reals = (point.achieved for point in allocation.everything)
        achieved = [real.loss for real in reals if real is not None and real.loss is not None]
        losses = [*(point.loss for point in allocation.everything), *achieved]
        self.scale = scale_of(losses) or Scale(1e-3, 1.0)
        floor, top = self.scale
        room = (top / floor) ** 0.04  # dots at the ends stay whole
        self.band, self.high = floor / room, top * room
        self.low = self.band / (self.high / self.band) ** (BAND / (1 - BAND))
        ticks = log_ticks(floor, top, 6)
        is_below = any(0 < loss < SAME * floor for loss in losses)
        names = (f"< {cell_text(floor)}" if is_below else "≤ 0", *map(cell_text, ticks))
        label = _quantity(allocation)
        self.axis = Axis(self.low, self.high, label, "log", (self.on_axis(0.0), *ticks), names)

    def on_axis(self, loss: float) -> float:
        """Where a loss stands; one that is infinite at the top."""
        is_below = loss < SAME * self.scale.floor
        return math.sqrt(self.low * self.band) if is_below else min(loss, self.high)


def _across(allocation: Allocation) -> Axis:
    """From the least to the most, with a budget that is near."""
    known = [_place(allocation, point)[0] for point in allocation.everything]
    known += [
        at
        for point in allocation.everything
        if point.achieved and math.isfinite(at := _achieved_across(allocation, point.achieved))
    ]
    known.append(_baseline(allocation))
    span = max(known) - min(known) or 0.2 * max(known) or 1.0
    limit = allocation.limits.get(allocation.axis, math.inf)
    if min(known) - span / 4 <= limit <= max(known) + span / 4:
        known.append(limit)
    low, high = min(known) - 0.06 * span, max(known) + 0.06 * span
    if allocation.axis == "latency_ms":
        return Axis.linear(low, high, "latency, ms", most=7)
    return Axis.linear(low, high, "size", "bytes")


def _place(allocation: Allocation, point: AllocationPoint) -> tuple[float, float]:
    return (point.latency_ms if allocation.axis == "latency_ms" else point.size_bytes), point.loss


def _achieved_across(allocation: Allocation, real: Achieved) -> float:
    if allocation.axis == "size_bytes":
        return real.size_bytes
    return allocation.baseline_ms * real.latency_ms / real.baseline_ms


def _achieved_place(
    allocation: Allocation, point: AllocationPoint, unit: _Losses
) -> tuple[float, float] | None:
    real = point.achieved
    if real is None or real.loss is None or math.isnan(real.loss):
        return None
    return _achieved_across(allocation, real), unit.on_axis(real.loss)


def _baseline(allocation: Allocation) -> float:
    is_time = allocation.axis == "latency_ms"
    return allocation.baseline_ms if is_time else allocation.baseline_bytes


def _links(achieved: list[tuple[float, float, float, float]]) -> tuple[list[float], list[float]]:
    """From each point to what it achieved, with a gap after it."""
    xs = [at for x, _, to, _ in achieved for at in (x, to, to)]
    return xs, [at for _, y, _, to in achieved for at in (y, to, math.nan)]


def _rules(allocation: Allocation, x: Axis, unit: _Losses) -> list[Rules]:
    """The model as it came, and the budgets."""
    base, budget = _baseline(allocation), allocation.limits.get(allocation.axis, math.inf)

    def rule(at: float, text: str, style: Style, *, is_below: bool) -> Rules:
        side: Side = "right" if x.share(at) > 0.5 else "left"  # so that the name is inside
        tone = "ink" if is_below else "soft"
        names = [f"{text} {_amount(allocation, at)}"]
        return Rules("x", [at], names, side, is_below, tone=tone, style=style)

    rules = [rule(base, "as it is", "dotted", is_below=False)]
    if x.low <= budget <= x.high:
        rules.append(rule(budget, "at most", "dashed", is_below=True))
    if (limit := allocation.limits.get("loss")) is not None and limit < unit.high:
        at = [max(unit.band, limit)]
        text = f"at most {cell_text(limit)}"
        rules.append(Rules("y", at, [text], tone="ink", style="dashed", side="right"))
    return rules


def _beyond(allocation: Allocation, x: Axis, unit: _Losses) -> list[Boxes]:
    """What the budgets exclude."""
    boxes = []
    if x.low <= (most := allocation.limits.get(allocation.axis, math.inf)) <= x.high:
        boxes.append((most, x.high, unit.low, unit.high))
    if (loss := allocation.limits.get("loss")) is not None and loss < unit.high:
        boxes.append((x.low, x.high, max(unit.band, loss), unit.high))
    return [Boxes([a], [b], [c], [d], tone="soft", is_tint=True) for a, b, c, d in boxes]


def _names(
    allocation: Allocation, x: Axis, unit: _Losses, spots: list[tuple[float, float]]
) -> Names:
    """The names of the uniform choices, each beside its dot."""

    def pixel(spot: tuple[float, float]) -> tuple[float, float]:
        return WIDE * x.share(spot[0]), (HEIGHT - FRAME) * unit.axis.share(spot[1])

    dots = [pixel(spot) for spot in spots]
    frontier = dots[: len(allocation.points)]
    steps = [((1 - k / 12) * a + k / 12 * b, up) for (a, up), (b, _) in
             pairwise(frontier) for k in range(13)]  # fmt: skip
    heading = Box(WIDE / 2, HEIGHT - FRAME - 12, WIDE, 30)  # the rules' names
    room = Room((WIDE, HEIGHT - FRAME), [heading], steps, dots)
    rest, texts = spots[len(frontier) :], [point.name for point in allocation.uniform]
    across, up = offsets(room, texts, dots[len(frontier) :])
    keys = [str(index) for index in range(len(frontier), len(spots))]
    xs, ys = [at for at, _ in rest], [at for _, at in rest]
    return Names(xs, ys, texts, across, up, tone="ink", key=keys)


def _tips(allocation: Allocation) -> Tips:
    tables = [compared_rows(allocation, point) for point in allocation.everything]
    best = allocation.best
    lines = [
        f"{point.words}{' · best for what was asked' if point is best else ''}"
        for point in allocation.everything
    ]
    names = list(dict.fromkeys(row["name"] for table in tables for row in table))
    by_name = [{row["name"]: row for row in table} for table in tables]
    figures = tuple(
        Values(f"{name}, {kind}", [rows.get(name, {}).get(kind, "") for rows in by_name])
        for name in names
        for kind in ("predicted", "achieved")
    )
    return Tips([point.name for point in allocation.everything], lines, figures)


def _row(name: str, predicted: float, achieved: float | None, text: Callable[[float], str]) -> Row:
    error = "" if achieved is None else f"{100 * (achieved / predicted - 1):+.1f}%"
    return {
        "name": name,
        "predicted": text(predicted),
        "achieved": "" if achieved is None else text(achieved),
        "error": error.replace("-", "−"),
    }


def _quantity(allocation: Allocation) -> str:
    return "rise of the loss" if allocation.unit == "loss" else "error of the output"


def _estimate(known: AllocationPoint | Achieved) -> str:
    if known.loss is None or math.isnan(known.loss):
        return ""
    return estimate_text(known.loss, known.loss_error)


def _gap(point: AllocationPoint, real: Achieved | None) -> str:
    if real is None or real.loss is None or math.isnan(real.loss):
        return ""
    gap = real.loss - point.loss
    return f"+{cell_text(gap)}" if gap > 0 else cell_text(gap)


def _amount(allocation: Allocation, value: float) -> str:
    return _in_ms(value) if allocation.axis == "latency_ms" else in_bytes(value)


def _in_ms(value: float) -> str:
    return f"{readable_ms(value)} ms"
