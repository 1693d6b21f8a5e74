"""Synthetic maps whose legend defines the class of each colour.

Colours and their assignment to kinds of land are random for every map, so a pixel's neighbourhood
does not determine its class: a model has to find the legend, in it the swatch of the same colour,
and on it the pattern of the kind. So it has to attend over long distances, and its metric drops if
it cannot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = ("water", "field", "forest", "town", "sand", "rock")
CLASSES = (*KINDS, "legend")
LEGEND = len(KINDS)

_PERIOD = 4  # pixels after which a pattern repeats, and the grid of the legend's position
_REGIONS = 9
_MIN_DISTANCE = 0.25  # of two colours of a map, in the channel where they differ most
_INK = 0.25  # brightness of the pattern relative to its swatch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def sheets(count: int, *, side: int = 128, seed: int = 0) -> tuple[Floats, Ints]:
    """Paint maps: images (count, 3, side, side) of about 0–1, and the class of every pixel; a side
    is a multiple of 4 from 32 on, so that the legend has room.
    """
    rng = np.random.default_rng(seed)
    painted = [_map(rng, side) for _ in range(count)]
    return np.stack([image for image, _ in painted]), np.stack([labels for _, labels in painted])


def pattern(kind: int, side: int) -> npt.NDArray[np.bool_]:
    """The mask of the pattern on the swatch of a kind: lines, checks or dots."""
    down, right = np.ogrid[:side, :side]
    inked = (
        down % _PERIOD == 0,
        right % _PERIOD == 0,
        (down + right) % _PERIOD == 0,
        (down - right) % _PERIOD == 0,
        (down // 2 + right // 2) % 2 == 0,
        (down % 2 == 0) & (right % 2 == 0),
    )
    return np.broadcast_to(inked[kind], (side, side))


def _map(rng: np.random.Generator, side: int) -> tuple[Floats, Ints]:
    colours = _colours(rng)
    labels = _regions(rng, side)
    image = colours[labels]
    _legend(rng, image, labels, colours)
    return _printed(rng, image), labels


def _colours(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw a colour for each kind, all clearly different."""
    colours: list[Any] = []
    while len(colours) < len(KINDS):
        drawn = rng.uniform(0.1, 0.95, size=3)
        if all(np.abs(drawn - other).max() > _MIN_DISTANCE for other in colours):
            colours.append(drawn)
    return np.stack(colours)


def _regions(rng: np.random.Generator, side: int) -> Ints:
    """Draw regions: each pixel belongs to the nearest of some centres, with wavy borders; each kind
    has at least one centre.
    """
    kinds = np.concatenate(
        [np.arange(len(KINDS)), rng.integers(0, len(KINDS), _REGIONS - len(KINDS))]
    )
    centres = rng.uniform(0.0, 1.0, size=(_REGIONS, 2))
    down, right = np.mgrid[:side, :side] / side
    phases = rng.uniform(0.0, 2 * np.pi, size=4)
    wavy = (down + _waves(right, phases[:2]), right + _waves(down, phases[2:]))
    far = sum((axis[..., None] - centres[:, index]) ** 2 for index, axis in enumerate(wavy))
    nearest: Ints = kinds[np.argmin(far, axis=-1)]
    return nearest


def _waves(along: npt.NDArray[np.float64], phases: npt.NDArray[np.float64]) -> Any:
    return 0.03 * np.sin(9 * along + phases[0]) + 0.015 * np.sin(23 * along + phases[1])


def _legend(
    rng: np.random.Generator,
    image: npt.NDArray[np.float64],
    labels: Ints,
    colours: npt.NDArray[np.float64],
) -> None:
    """Draw a row of swatches at a random position and in random order."""
    side = len(labels)
    swatch = max(1, side // (8 * _PERIOD)) * _PERIOD
    top, left = (
        _PERIOD * int(rng.integers(0, (side - room) // _PERIOD + 1))
        for room in (swatch, swatch * len(KINDS))
    )
    for index, kind in enumerate(rng.permutation(len(KINDS))):
        part = np.s_[top : top + swatch, left + index * swatch : left + (index + 1) * swatch]
        image[part] = colours[kind] * np.where(pattern(int(kind), swatch), _INK, 1.0)[..., None]
        labels[part] = LEGEND


def _printed(rng: np.random.Generator, image: npt.NDArray[np.float64]) -> Floats:
    """Add uneven lighting and noise."""
    slope = rng.uniform(-0.1, 0.1, size=2)
    down, right = np.ogrid[-1 : 1 : len(image) * 1j, -1 : 1 : len(image) * 1j]
    light = rng.uniform(0.8, 1.05) * (1 + slope[0] * down + slope[1] * right)
    printed: Floats = np.clip(
        image * light[..., None] + rng.normal(0.0, 0.03, size=image.shape), 0.0, 1.0
    ).astype(np.float32)
    return printed.transpose(2, 0, 1)
