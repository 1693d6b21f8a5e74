"""The roofline: layers by FLOP/s and FLOP per byte, under the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records import Ceiling, Point, Roofline, counted
from ..records.text import readable_ms, readable_rate, readable_share
from .label_room import Box, Room, heads
from .picture import (
    LETTERS,
    Axis,
    Dots,
    Key,
    Labels,
    Line,
    Mark,
    Names,
    Panel,
    Picture,
    Shape,
    Tips,
    Values,
    text_width,
)
from .style import without_middle

SHAPES: dict[str, Shape] = {"compute": "disc", "memory": "square", "overhead": "up"}
WORDS = {"compute": "arithmetic", "memory": "memory", "overhead": "call cost"}
HEIGHT, SMALL_HEIGHT = 400, 250  # of the panel
WIDE, FRAME = 560, 60  # pixels: where names are placed, and what a panel's axes take of its height
MAX_POINTS = 300
LABELLED = 5
MIN_LABELLED = 0.005  # of the time of all points
CLUSTER = 12  # dots nearer than this many pixels share a name
MIN_SHOWN = 0.0005  # of the time of all points; smaller ones would only stretch the scale
MAX_LABEL = 34  # characters


def picture(roofline: Roofline) -> Picture:
    """A dot per layer, as large as its time; the nearer to a roof, the less there is to gain."""
    threads = counted(roofline.ceiling.threads, "thread")
    points = shown(roofline.points)
    left_out = len(roofline.points) - len(points)
    rest = f"; {left_out} of the smallest left out" if left_out else ""
    bounds = [point.bound or "" for point in points]
    none = "" if points else "no layer that computes and moves bytes"
    return Picture(
        title=f"{roofline.workload} under the ceilings of {roofline.machine}, {threads}",
        label=f"{counted(len(points), 'layer')} under the ceilings, the costliest first; "
        "arrow keys go through them, Enter selects",
        rows=((_panel(roofline.ceiling, points, HEIGHT),),),
        note=none or f"surface: time{rest}",
        legend=tuple(
            Key(bound, f"limited by {WORDS[bound]} ({bounds.count(bound)})", shape)
            for bound, shape in SHAPES.items()
            if bound in bounds
        ),
    )


def small_picture(ceiling: Ceiling, points: Sequence[Point]) -> Picture:
    """A layer among others, without names and legend."""
    panel = _panel(ceiling, shown(points), SMALL_HEIGHT)
    return Picture("", "layers under the ceilings", ((panel,),))


def shown(points: Sequence[Point]) -> list[Point]:
    """The points to draw, the costliest first."""
    whole = sum(point.ms for point in points)
    ordered = sorted(points, key=lambda point: -point.ms)
    return [point for point in ordered[:MAX_POINTS] if point.ms >= MIN_SHOWN * whole]


def roof_gflops(ceiling: Ceiling, intensity: float) -> float:
    """The roof in GFLOP/s at an intensity."""
    return min(ceiling.fp32_gflops, ceiling.bandwidth_gbs * intensity)


def _own_roof(ceiling: Ceiling, point: Point) -> float:
    """The roof of a layer in GFLOP/s: that of its format, where it is known."""
    if point.roof_ms is None:
        return roof_gflops(ceiling, point.intensity)
    return point.gflops * point.ms / point.roof_ms


def _panel(ceiling: Ceiling, points: list[Point], height: int) -> Panel:
    x, y = _axes(ceiling, points)
    roofs, names = _roofs(ceiling, x, y, height)
    dots = _dots(ceiling, points)
    labels = [_names(ceiling, points, names, (x, y), height)] if height == HEIGHT else []
    return Panel(x, y, (*roofs, names, *labels, dots), height)


def _axes(ceiling: Ceiling, points: list[Point]) -> tuple[Axis, Axis]:
    """Ends that contain the dots, the ridge and the roofs."""
    ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs
    across = [point.intensity for point in points] + [ridge]
    up = [point.gflops for point in points] + [*ceiling.rates.values()]
    low = min(min(across) / 2, ridge / 12)  # where the memory roof has its name
    x = Axis.log(low, max(max(across) * 4, ridge * 10), "FLOP for each byte moved", "rate", most=8)
    y = Axis.log(min(min(up) / 2, max(up) / 300), max(up) * 1.9, "GFLOP/s", "rate", most=7)
    return x, y


def _roofs(ceiling: Ceiling, x: Axis, y: Axis, height: int) -> tuple[list[Mark], Labels]:
    """The measured roofs, and their names: one for those that nearly coincide."""
    width, fp32 = ceiling.bandwidth_gbs, ceiling.fp32_gflops
    others = [rate for name, rate in ceiling.rates.items() if name != "fp32"]
    start, ridge = max(x.low, y.low / width), fp32 / width
    lines: list[Mark] = [
        Line([min(ridge, rate / width), rate / width, x.high], [min(rate, fp32), rate, rate],
             tone="soft", style="dashed", width=1)
        for rate in others
    ]  # fmt: skip
    lines.append(Line([start, ridge, x.high], [start * width, fp32, fp32], tone="ink"))
    near: list[list[str]] = []
    for name, rate in sorted(ceiling.rates.items(), key=lambda row: -row[1]):
        above = ceiling.rates[near[-1][0]] if near else math.inf
        if near and (y.share(above) - y.share(rate)) * (height - FRAME) < LETTERS + 3:
            near[-1].append(name)
        else:
            near.append([name])
    middle = math.sqrt(start * ridge)
    names = Labels(
        [x.high] * len(near) + [middle],
        [ceiling.rates[group[0]] for group in near] + [middle * width],
        [_named(ceiling, group) for group in near] + [f"memory {readable_rate(width)} GB/s"],
        "left",
        8,
        tone=["ink" if "fp32" in group else "soft" for group in near] + ["ink"],
    )
    return lines, names


def _named(ceiling: Ceiling, roofs: list[str]) -> str:
    """The roofs with their rates in one unit: with a second one the name leaves a narrow chart."""
    texts = [f"{name} {readable_rate(ceiling.rates[name])}" for name in roofs]
    return f"{' · '.join(texts)} {'GOP/s' if 'int8' in roofs else 'GFLOP/s'}"


def _dots(ceiling: Ceiling, points: list[Point]) -> Dots:
    """The layers; the costliest is the first for keys."""
    whole = sum(point.ms for point in points) or 1.0
    roofs = [_own_roof(ceiling, point) for point in points]
    reached = [point.gflops / roof for point, roof in zip(points, roofs, strict=True)]
    at_roof = [
        readable_ms(point.ms * share) if share < 1 else ""
        for point, share in zip(points, reached, strict=True)
    ]
    figures = (
        Values("ms", [readable_ms(point.ms) for point in points]),
        Values("ms at the ceiling", at_roof),
        Values("GFLOP/s", [point.gflops for point in points], "rate"),
        Values("FLOP/byte", [point.intensity for point in points], "rate"),
        Values("of the ceiling", [readable_share(share) for share in reached]),
    )
    kinds = [
        f"{point.kind} · limited by {WORDS[point.bound]}" if point.bound else point.kind
        for point in points
    ]
    return Dots(
        [point.intensity for point in points],
        [point.gflops for point in points],
        [SHAPES.get(point.bound or "", "diamond") for point in points],
        [_size(point.ms / whole) for point in points],
        roofs,
        tone=[point.bound or "soft" for point in points],
        key=[point.layer for point in points],
        tips=Tips([point.layer or "the model itself" for point in points], kinds, figures),
    )


def _names(
    ceiling: Ceiling,
    points: list[Point],
    roofs: Labels,
    axes: tuple[Axis, Axis],
    height: int,
) -> Names:
    """The costliest dots with their names; dots of a cluster share one."""
    (across, up), tall = axes, height - FRAME

    def spot(x: float, y: float) -> tuple[float, float]:
        return WIDE * across.share(x), tall * up.share(y)

    taken = []
    for x, y, text in zip(roofs.x, roofs.y, roofs.texts, strict=True):
        (right, line), wide = spot(x, y), text_width(text)
        taken.append(Box(right - 7 - wide / 2, line + 8, wide, LETTERS + 4))
    steps = [across.low * (across.high / across.low) ** (step / 60) for step in range(61)]
    roof = [spot(x, max(up.low, roof_gflops(ceiling, x))) for x in steps]
    spots = [spot(point.intensity, point.gflops) for point in points]
    room = Room((WIDE, tall), taken, roof, spots)
    whole = sum(point.ms for point in points)
    near = [row for row in heads(spots, CLUSTER) if points[row[0]].ms >= MIN_LABELLED * whole]
    rows, texts, offsets = [], [], []
    for index, count in near[:LABELLED]:
        point, radius = points[index], 0.6 * _size(points[index].ms / whole)
        name = without_middle(point.layer or "the model itself", MAX_LABEL)
        texts.append(f"{name} and {count} near it" if count else name)
        box = room.place(text_width(texts[-1]) + 4, LETTERS + 4, spots[index], radius)
        offsets.append((box.x - spots[index][0], box.y - spots[index][1]))
        rows.append(point)
    return Names(
        [point.intensity for point in rows],
        [point.gflops for point in rows],
        texts,
        [right for right, _ in offsets],
        [above for _, above in offsets],
        tone="ink",
        key=[point.layer for point in rows],
    )


def _size(share: float) -> float:
    """A dot's size: its surface follows its share of the time, within limits."""
    return min(26.0, max(5.5, 56.0 * math.sqrt(share)))
