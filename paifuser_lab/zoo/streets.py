"""Synthetic street scenes with a class for every pixel and a box around every car and pedestrian,
generated without downloads.

Scenes are drawn back to front. Greys of road, pavement, walls and cars overlap on purpose, and
light, haze and grain change from scene to scene, so that colour alone does not determine the class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

CLASSES = ("road", "pavement", "building", "sky", "car", "pedestrian")
ROAD, PAVEMENT, BUILDING, SKY, CAR, PEDESTRIAN = range(len(CLASSES))

BOXED = (CAR, PEDESTRIAN)
"""The classes that have boxes: a box's class is the position here."""
MAX_OBJECTS = 6
SMALLEST_OBJECT = 1 / 250
"""The share of an image's pixels below which what is seen of an object has no box."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
# a colour, and the top, bottom, left and right edges as shares of an object, from its bottom left
Part = tuple[Any, float, float, float, float]


def scenes(count: int, *, side: int = 64, seed: int = 0) -> tuple[Floats, Ints]:
    """Paint scenes: images (count, 3, side, side) of about 0–1, and the class of every pixel."""
    painted = _painted(count, side, seed)
    return np.stack([image for image, _ in painted]), np.stack([c.labels for _, c in painted])


def boxed_scenes(count: int, *, side: int = 96, seed: int = 0) -> tuple[Floats, Floats]:
    """The same scenes with the boxes of what can be seen of cars and pedestrians: images, and
    boxes (count, `MAX_OBJECTS`, 5) as class, left, top, right, bottom.

    Edges are shares of the image; the class is -1 where a scene has fewer objects.
    """
    painted = _painted(count, side, seed)
    return np.stack([image for image, _ in painted]), np.stack([_boxes(c) for _, c in painted])


def _painted(count: int, side: int, seed: int) -> list[tuple[Floats, _Canvas]]:
    rng = np.random.default_rng(seed)
    return [_scene(rng, side) for _ in range(count)]


def _boxes(canvas: _Canvas) -> Floats:
    boxes = np.zeros((MAX_OBJECTS, 5), dtype=np.float32)
    boxes[:, 0] = -1
    for index in range(canvas.objects.max()):
        rows, columns = np.nonzero(canvas.objects == index + 1)
        if len(rows) < SMALLEST_OBJECT * canvas.side**2:
            continue
        edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        boxes[index, 0] = BOXED.index(canvas.labels[rows[0], columns[0]])
        boxes[index, 1:] = np.array(edges) / canvas.side
    return boxes


def _scene(rng: np.random.Generator, side: int) -> tuple[Floats, _Canvas]:
    canvas = _Canvas(rng, side)
    _sky(canvas)
    _ground(canvas)
    _buildings(canvas)
    depths = sorted(rng.uniform(0.15, 1.0, size=rng.integers(2, 7)))
    for number, depth in enumerate(depths, start=1):
        canvas.object = number
        if rng.random() < 0.5:
            _car(canvas, depth)
        else:
            _pedestrian(canvas, depth)
    return _photograph(canvas), canvas


class _Canvas:
    """The image, labels and objects drawn so far, and the street, which runs from the bottom edge
    to a vanishing point on the horizon.
    """

    def __init__(self, rng: np.random.Generator, side: int) -> None:
        self.rng = rng
        self.side = side
        self.image = np.zeros((side, side, 3))
        self.labels: Ints = np.full((side, side), SKY, dtype=np.int64)
        self.objects: Ints = np.zeros((side, side), dtype=np.int64)
        self.object = 0  # the number of the car or pedestrian that is drawn, from 1
        self.horizon = rng.uniform(0.35, 0.5) * side
        self.vanishing = rng.uniform(0.3, 0.7) * side
        self.road = rng.uniform(0.35, 0.65) * side  # its middle, at the bottom edge
        self.half_road = rng.uniform(0.3, 0.5) * side

    def paint(
        self, label: int, colour: Any, top: float, bottom: float, left: float, right: float
    ) -> None:
        """Fill a rectangle of the image and of the labels."""
        rows = slice(max(0, round(top)), max(0, round(bottom)))
        columns = slice(max(0, round(left)), max(0, round(right)))
        self.image[rows, columns] = colour
        self.labels[rows, columns] = label
        self.objects[rows, columns] = self.object

    def paint_parts(
        self, label: int, left: float, bottom: float, wide: float, high: float, parts: list[Part]
    ) -> None:
        """Fill rectangles of an object of these sides."""
        for colour, top, low, first, last in parts:
            rows = bottom - top * high, bottom - low * high
            self.paint(label, colour, *rows, left + first * wide, left + last * wide)

    def grey(self, low: float, high: float) -> npt.NDArray[np.float64]:
        """A grey with a faint tint."""
        return self.rng.uniform(low, high) + self.rng.normal(0.0, 0.03, size=3)


def _sky(canvas: _Canvas) -> None:
    zenith, haze = canvas.rng.uniform((0.2, 0.4, 0.6), (0.6, 0.7, 1.0)), canvas.grey(0.6, 0.9)
    height = np.linspace(0.0, 1.0, canvas.side)[:, None, None]
    canvas.image[:] = zenith * (1 - height) + haze * height


def _ground(canvas: _Canvas) -> None:
    below = np.arange(canvas.side)[:, None] >= canvas.horizon
    canvas.image[below[:, 0]] = canvas.grey(0.4, 0.7)
    canvas.labels[below[:, 0]] = PAVEMENT
    below_horizon = np.arange(canvas.side) - canvas.horizon
    near = np.clip(below_horizon / (canvas.side - canvas.horizon), 0.0, 1.0)[:, None]
    across = np.arange(canvas.side)[None, :] - (
        canvas.vanishing + (canvas.road - canvas.vanishing) * near
    )
    is_road = below & (np.abs(across) < canvas.half_road * near)
    canvas.image[is_road] = canvas.grey(0.2, 0.45)
    canvas.labels[is_road] = ROAD
    is_dash = (np.floor(8 / (near + 0.15)) % 2 == 0) & (np.abs(across) < 1.5 * near)
    canvas.image[is_road & is_dash] = canvas.rng.uniform(0.75, 0.95)


def _buildings(canvas: _Canvas) -> None:
    rng, side = canvas.rng, canvas.side
    left = -rng.uniform(0.0, 0.1) * side
    while left < side:
        right = left + rng.uniform(0.1, 0.3) * side
        if rng.random() < 0.85:
            _building(canvas, left, right)
        left = right


def _building(canvas: _Canvas, left: float, right: float) -> None:
    rng, side = canvas.rng, canvas.side
    away = min(1.0, abs((left + right) / 2 - canvas.vanishing) / (0.5 * side))
    top = canvas.horizon * (1 - rng.uniform(0.15, 0.5) - 0.45 * away)
    bottom = canvas.horizon + 0.12 * side * away
    wall = canvas.grey(0.3, 0.75) + rng.uniform(-0.12, 0.12, size=3)
    canvas.paint(BUILDING, wall, top, bottom, left, right)
    pane, step = canvas.grey(0.1, 0.9), int(rng.integers(4, 7))
    for row in np.arange(top + 2, bottom - 3, step):
        for column in np.arange(left + 1, right - 2, step):
            canvas.paint(
                BUILDING, pane, row, row + step // 2, max(left, column), column + step // 2
            )


def _car(canvas: _Canvas, depth: float) -> None:
    rng, side = canvas.rng, canvas.side
    wide, high = 0.34 * side * depth, 0.2 * side * depth
    bottom = canvas.horizon + (side - canvas.horizon) * depth * rng.uniform(0.8, 1.0)
    middle = canvas.vanishing + (canvas.road - canvas.vanishing) * depth
    left = middle + rng.uniform(-0.8, 0.8) * canvas.half_road * depth - wide / 2
    body = canvas.grey(0.15, 0.7) if rng.random() < 0.5 else rng.uniform(0.1, 0.9, size=3)
    parts: list[Part] = [
        (body, 0.6, 0.0, 0.0, 1.0),
        (body, 1.0, 0.5, 0.18, 0.82),
        (canvas.grey(0.1, 0.4), 0.9, 0.6, 0.25, 0.75),
        *((0.05, 0.15, 0.0, wheel, wheel + 0.2) for wheel in (0.1, 0.7)),
    ]
    canvas.paint_parts(CAR, left, bottom, wide, high, parts)


def _pedestrian(canvas: _Canvas, depth: float) -> None:
    rng, side = canvas.rng, canvas.side
    high = 0.4 * side * depth
    wide = max(2.0, 0.3 * high)
    bottom = canvas.horizon + (side - canvas.horizon) * depth * rng.uniform(0.8, 1.0)
    left = rng.uniform(0.0, side - wide)
    coat, trousers = rng.uniform(0.05, 0.95, size=3), canvas.grey(0.05, 0.5)
    skin = rng.uniform(0.3, 0.9) * np.array([1.0, 0.8, 0.65])
    parts: list[Part] = [
        (trousers, 0.45, 0.0, 0.15, 0.85),
        (coat, 0.82, 0.4, 0.0, 1.0),
        (skin, 1.0, 0.82, 0.25, 0.75),
    ]
    canvas.paint_parts(PEDESTRIAN, left, bottom, wide, high, parts)


def _photograph(canvas: _Canvas) -> Floats:
    rng, side = canvas.rng, canvas.side
    light = rng.uniform(0.6, 1.1) * rng.uniform(0.92, 1.08, size=3)
    shade = 1 + rng.uniform(-0.25, 0.25) * np.linspace(-1, 1, side)[None, :, None]
    patches = np.kron(rng.normal(0.0, 0.025, size=(side // 8, side // 8, 1)), np.ones((8, 8, 1)))
    grain = rng.normal(0.0, 0.045, size=canvas.image.shape)
    exposed = np.clip(canvas.image * light * shade + patches + grain, 0.0, 1.0)
    return exposed.transpose(2, 0, 1).astype(np.float32)
