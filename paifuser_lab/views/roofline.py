"""A machine's ceilings, and the roofline plot: layers by FLOP/s and FLOP per byte under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Bbox

from ..records import Ceiling, Hardware, Point, Roofline, counted
from ..records.text import readable_rate
from .sheet import BODY, MARGIN, MARKERS, SMALL, WIDTH, Sheet
from .style import Drawing, Plot, Spot, blank, visible, without_middle

RINGS = (0.8, 1.6, 2.6, 3.8, 5.2, 7.0)  # in heights of the label
ANGLES = 16
OUTSIDE, OVER_LABEL, CROSSING, OVER_LINE, OVER_DOT = 1000.0, 1000.0, 30.0, 12.0, 6.0


class Room:
    """The free space of a drawing in pixels, reduced by each placed label."""

    def __init__(
        self, inside: Bbox, labels: Sequence[Bbox], lines: Sequence[Spot], dots: Sequence[Spot]
    ) -> None:
        self.inside, self.labels, self.dots = inside, list(labels), dots
        self.lines = lines  # points on lines that labels should not cover
        self.leaders: list[tuple[Spot, Spot]] = []

    def place(self, size: Spot, dot: Spot, radius: float) -> Bbox:
        """Find the best box of this size for a dot's label, and reserve it."""
        box = min(_boxes(size, dot, radius), key=lambda box: self._cost(box, dot))
        self.labels.append(box)
        self.leaders.append((dot, _middle(box)))
        return box

    def _cost(self, box: Bbox, dot: Spot) -> float:
        is_outside = not all(self.inside.contains(*corner) for corner in box.corners())
        leader = _between(dot, _middle(box))
        return (
            math.dist(dot, _middle(box)) / box.height
            + OUTSIDE * is_outside
            + OVER_LABEL * sum(box.overlaps(other.padded(2)) for other in self.labels)
            + CROSSING * sum(other.contains(*spot) for other in self.labels for spot in leader)
            + CROSSING
            * sum(box.contains(*spot) for line in self.leaders for spot in _between(*line))
            + OVER_LINE * any(box.contains(*spot) for spot in self.lines)
            + OVER_DOT * sum(box.padded(3).contains(*spot) for spot in self.dots)
        )


def _between(start: Spot, end: Spot, steps: int = 12) -> list[Spot]:
    return [
        (start[0] + (end[0] - start[0]) * k / steps, start[1] + (end[1] - start[1]) * k / steps)
        for k in range(steps)
    ]


def _middle(box: Bbox) -> Spot:
    return (float(box.x0 + box.x1) / 2, float(box.y0 + box.y1) / 2)


def _boxes(size: Spot, dot: Spot, radius: float) -> list[Bbox]:
    """Candidate boxes around a dot, ring after ring."""
    width, height = size
    boxes = []
    for ring in RINGS:
        for step in range(ANGLES):
            angle = 2 * math.pi * step / ANGLES
            x = dot[0] + math.cos(angle) * (ring * height + radius + width / 2)
            y = dot[1] + math.sin(angle) * ((ring + 0.5) * height + radius)
            boxes.append(Bbox.from_bounds(x - width / 2, y - height / 2, width, height))
    return boxes


HEIGHT = 4.3  # inches under the title
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.15, 0.34, 0.5  # of the drawing around the axes
MAX_POINTS = 300
LABELLED = 4
MIN_LABELLED = 0.005  # of the time of all points
CLUSTER = 12  # dots nearer than this many points share a label
MIN_SHOWN = 0.0005  # of the time of all points; smaller ones would only stretch the scale
MAX_LABEL = 30  # characters


def draw(roofline: Roofline, *, dark: bool = False) -> Drawing:
    """A dot per layer, as large as its time; the nearer to a roof, the less there is to gain."""
    threads = counted(roofline.ceiling.threads, "thread")
    title = f"{roofline.workload} under the roofs of {roofline.machine}, {threads}"
    sheet = Sheet(title, height=HEIGHT, dark=dark)
    points = shown(roofline.points)
    axes = _axes(sheet, roofline.ceiling, points)
    taken = _draw_roofs(sheet, axes, roofline.ceiling)
    whole = sum(point.ms for point in roofline.points) or 1.0
    for point in points:
        _draw_point(axes, point, whole)
    _draw_legend(sheet, roofline, left_out=len(roofline.points) - len(points))
    _draw_labels(sheet, axes, points, taken, roofline.ceiling)
    return sheet.drawing


def shown(points: tuple[Point, ...]) -> list[Point]:
    """The points to draw, the costliest first."""
    whole = sum(point.ms for point in points)
    ordered = sorted(points, key=lambda point: -point.ms)
    return [point for point in ordered[:MAX_POINTS] if point.ms >= MIN_SHOWN * whole]


def roof_gflops(ceiling: Ceiling, intensity: float) -> float:
    """The roof in GFLOP/s at an intensity."""
    return min(ceiling.fp32_gflops, ceiling.bandwidth_gbs * intensity)


def _other_roofs(ceiling: Ceiling) -> dict[str, float]:
    return {name: rate for name, rate in ceiling.rates.items() if name != "fp32"}


def _axes(sheet: Sheet, ceiling: Ceiling, points: list[Point]) -> Plot:
    """Add axes with limits that contain the dots, the ridge and the roofs."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    rectangle = (LEFT / WIDTH, BOTTOM / sheet.height, width / WIDTH, height / sheet.height)
    axes = sheet.drawing.add_plot(rectangle, xscale="log", yscale="log", zorder=-1)
    ridge = ceiling.fp32_gflops / ceiling.bandwidth_gbs
    across = [point.intensity for point in points] + [ridge]
    up = [point.gflops for point in points] + [ceiling.fp32_gflops, *_other_roofs(ceiling).values()]
    axes.set_xlim(min(across) / 2, max(max(across) * 5, ridge * 12))
    axes.set_ylim(min(min(up) / 2, max(up) / 300), max(up) * 2)
    for axis, name in ((axes.xaxis, "FLOP for each byte moved"), (axes.yaxis, "GFLOP/s")):
        axis.set_major_locator(LogLocator(numticks=8))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_label_text(name, color=sheet.theme.soft, fontsize=BODY)
    axes.show_grid()
    axes.spines["left"].set_visible(True)
    return axes


def _draw_roofs(sheet: Sheet, axes: Plot, ceiling: Ceiling) -> list[Bbox]:
    """Draw the measured roofs, each labelled along its line; return the boxes of the labels."""
    theme, (low, high) = sheet.theme, axes.get_xlim()
    fp32, ridge = ceiling.fp32_gflops, ceiling.fp32_gflops / ceiling.bandwidth_gbs
    dashes: dict[str, Any] = {"color": theme.faint, "linewidth": 0.9, "linestyle": (0, (4, 3))}
    marks = []
    for name, rate in _other_roofs(ceiling).items():
        start = rate / ceiling.bandwidth_gbs
        axes.plot([start, high], [rate, rate], **dashes)
        if rate > fp32:
            axes.plot([ridge, start], [fp32, rate], **dashes)
        unit = "GOP/s" if name == "int8" else "GFLOP/s"
        marks.append(_along(axes, high, rate, f"{name} {rate:.3g} {unit}", colour=theme.soft))
    roof = [low * ceiling.bandwidth_gbs, fp32, fp32]
    axes.plot([low, ridge, high], roof, color=theme.ink, linewidth=1.4)
    marks.append(_along(axes, high, fp32, f"fp32 {fp32:.3g} GFLOP/s", colour=theme.ink))
    marks.append(_up(axes, ceiling, colour=theme.ink))
    return [mark.get_window_extent() for mark in marks]


def _along(axes: Plot, x: float, y: float, text: str, *, colour: str) -> Text:
    return axes.note(text, (x, y), (-2, 2), ha="right", va="bottom", color=colour, size=SMALL)


def _up(axes: Plot, ceiling: Ceiling, *, colour: str) -> Text:
    """Write the memory roof's label at the slope of the roof, near its lower end."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    slope = (box.height / math.log(top / bottom)) / (box.width / math.log(right / left))
    start = max(left, bottom / ceiling.bandwidth_gbs) * 1.25
    return axes.note(
        f"memory {ceiling.bandwidth_gbs:.3g} GB/s",
        (start, start * ceiling.bandwidth_gbs),
        (-3, 4),
        rotation=math.degrees(math.atan(slope)),
        rotation_mode="anchor",
        va="bottom",
        color=colour,
        size=SMALL,
    )


def _draw_point(axes: Plot, point: Point, whole_ms: float) -> None:
    axes.mark(
        (point.intensity, point.gflops),
        axes.theme.of(point.bound),
        tooltip=tooltip(point),
        marker=MARKERS.get(point.bound or "", "D"),
        markersize=_size(point.ms / whole_ms),
        alpha=0.8,
        markeredgecolor=axes.theme.paper,
        markeredgewidth=0.5,
    )


def _size(share: float) -> float:
    """A dot's diameter in points: its area follows its share of the time, within limits."""
    return min(22.0, max(3.5, 40.0 * math.sqrt(share)))


def tooltip(point: Point) -> str:
    """The tooltip of a layer's dot."""
    lines = [
        f"{point.layer or 'the model itself'} ({point.kind})",
        f"{point.ms:.4g} ms",
        f"{point.gflops:.3g} GFLOP/s",
        f"{point.intensity:.3g} FLOP/byte",
    ]
    return "\n".join([*lines, *([f"bound by {point.bound}"] if point.bound else [])])


def _draw_legend(sheet: Sheet, roofline: Roofline, left_out: int) -> None:
    x, y = MARGIN, 0.1
    x += sheet.width_of(sheet.hint(x, y, "bound by")) + 0.14
    for bound in MARKERS:
        count = sum(point.bound == bound for point in roofline.points)
        sheet.dot(x, y, bound)
        mark = sheet.write(x + 0.1, y, f"{bound} ({count})", size=SMALL)
        x += 0.1 + sheet.width_of(mark) + 0.2
    rest = f"; {left_out} of the smallest left out" if left_out else ""
    sheet.hint(WIDTH - MARGIN, y, f"surface: time{rest}", side="right")


def _draw_labels(
    sheet: Sheet, axes: Plot, points: list[Point], taken: list[Bbox], ceiling: Ceiling
) -> None:
    """Label the costliest dots, with a line to each; dots of a cluster share a label."""
    (left, right), scale = axes.get_xlim(), sheet.drawing.dpi / 72
    steps = [left * (right / left) ** (step / 60) for step in range(61)]
    roof = [_pixels(axes, x, roof_gflops(ceiling, x)) for x in steps]
    dots = [_pixels(axes, point.intensity, point.gflops) for point in points]
    room = Room(axes.get_window_extent(), taken, roof, dots)
    whole = sum(point.ms for point in points) or 1.0
    named = [
        (index, count)
        for index, count in together(dots, CLUSTER * scale)
        if points[index].ms >= MIN_LABELLED * whole
    ]
    for index, count in named[:LABELLED]:
        name = without_middle(visible(points[index].layer) or "the model itself", MAX_LABEL)
        text = f"{name} and {count} near it" if count else name
        mark = sheet.write(0, 0, text, size=SMALL, side="center", va="center")
        size = mark.get_window_extent()
        radius = _size(points[index].ms / whole) / 2 * scale
        box = room.place((size.width + 4, size.height + 2), dots[index], radius)
        _connect(sheet, box, dots[index], radius)
        mark.set_position(_inches(sheet, (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))


def together(dots: list[Spot], distance: float) -> list[tuple[int, int]]:
    """The dots to label, the costliest of each cluster, with the number of others in it."""
    heads: dict[int, int] = {}
    for index, dot in enumerate(dots):
        near = next((head for head in heads if math.dist(dots[head], dot) < distance), None)
        heads[index if near is None else near] = 0 if near is None else heads[near] + 1
    return list(heads.items())


def _connect(sheet: Sheet, box: Bbox, dot: Spot, radius: float) -> None:
    """Draw a thin line from the border of a label to the rim of its dot."""
    near = (min(max(dot[0], box.x0), box.x1), min(max(dot[1], box.y0), box.y1))
    length = math.dist(near, dot)
    if length > radius + 3:
        rim = tuple(
            centre + (border - centre) * radius / length
            for centre, border in zip(dot, near, strict=True)
        )
        xs, ys = zip(_inches(sheet, *near), _inches(sheet, *rim), strict=True)
        sheet.axes.plot(xs, ys, color=sheet.theme.soft, linewidth=0.7)


def _inches(sheet: Sheet, x: float, y: float) -> Spot:
    across, up = sheet.axes.transData.inverted().transform((x, y))
    return float(across), float(up)


def _pixels(axes: Plot, x: float, y: float) -> Spot:
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def draw_hardware(hardware: Hardware, *, dark: bool = False) -> Drawing:
    """A bar per dtype for the device that models run on."""
    ceiling = hardware.target
    known = ceiling.rates
    threads = counted(ceiling.threads, "thread")
    rate = f"{ceiling.bandwidth_gbs:.3g} GB/s ({hardware.source})"
    title = f"{hardware.name} · {threads} · {rate}"
    axes = blank(title, height=1.0 + 0.32 * len(known), dark=dark)
    axes.barh(list(known), list(known.values()), height=0.55, color=axes.theme.main)
    for index, most in enumerate(known.values()):
        axes.end_label(readable_rate(most), (most, index))
    axes.invert_yaxis()
    axes.set_xlim(0, max(known.values()) * 1.2)
    axes.label(x="billion operations a second")
    return axes.drawing
