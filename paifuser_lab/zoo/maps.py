"""Painted maps with a legend: what a colour stands for is said in one place of each map and asked
in all others.

The colours are drawn anew for every map, and which kind of land has which colour too. So no look at
a place and its neighbours tells its class: the legend has to be found, in it the swatch of the same
colour, and on that the pattern of the kind. It is synthetic and made for this: a model of it has to
attend far, and what it loses without shows in its metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import WorkloadError

KINDS = ("water", "field", "forest", "town", "sand", "rock")
CLASSES = (*KINDS, "legend")
LEGEND = len(KINDS)
LEAST_SIDE = 32

_PEN = 4  # pixels after which a pattern repeats; the legend stands on a grid of as many
_REGIONS = 9
_APART = 0.25  # how far two colours of a map are apart, in the channel that tells them best
_INK = 0.25  # of the colour's light

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def sheets(count: int, *, side: int = 128, seed: int = 0) -> tuple[Floats, Ints]:
    """Paint this many maps: images (count, 3, side, side) of about 0–1, and the class of every
    pixel.
    """
    if side < LEAST_SIDE or side % _PEN:
        raise WorkloadError(
            f"A map of {side} pixels a side has no room for its legend: give a multiple of {_PEN} "
            f"from {LEAST_SIDE} on."
        )
    rng = np.random.default_rng(seed)
    painted = [_sheet(rng, side) for _ in range(count)]
    return np.stack([image for image, _ in painted]), np.stack([labels for _, labels in painted])


def pattern(kind: int, side: int) -> npt.NDArray[np.bool_]:
    """Where the ink is on the swatch of a kind: lines, checks or dots."""
    down, right = np.ogrid[:side, :side]
    inked = (
        down % _PEN == 0,
        right % _PEN == 0,
        (down + right) % _PEN == 0,
        (down - right) % _PEN == 0,
        (down // 2 + right // 2) % 2 == 0,
        (down % 2 == 0) & (right % 2 == 0),
    )
    return np.broadcast_to(inked[kind], (side, side))


def _sheet(rng: np.random.Generator, side: int) -> tuple[Floats, Ints]:
    colours = _colours(rng)
    labels = _regions(rng, side)
    image = colours[labels]
    _legend(rng, image, labels, colours)
    return _printed(rng, image), labels


def _colours(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """One for each kind, no two alike."""
    found: list[Any] = []
    while len(found) < len(KINDS):
        drawn = rng.uniform(0.1, 0.95, size=3)
        if all(np.abs(drawn - other).max() > _APART for other in found):
            found.append(drawn)
    return np.stack(found)


def _regions(rng: np.random.Generator, side: int) -> Ints:
    """Each place belongs to the nearest of some centres, along wavy borders; each kind has a centre
    or more.
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
    """A row of swatches somewhere on the map, in any order."""
    side = len(labels)
    swatch = max(1, side // (8 * _PEN)) * _PEN
    top, left = (
        _PEN * int(rng.integers(0, (side - room) // _PEN + 1))
        for room in (swatch, swatch * len(KINDS))
    )
    for place, kind in enumerate(rng.permutation(len(KINDS))):
        part = np.s_[top : top + swatch, left + place * swatch : left + (place + 1) * swatch]
        image[part] = colours[kind] * np.where(pattern(int(kind), swatch), _INK, 1.0)[..., None]
        labels[part] = LEGEND


def _printed(rng: np.random.Generator, image: npt.NDArray[np.float64]) -> Floats:
    """In the light of a lamp to one side, with grain."""
    slope = rng.uniform(-0.1, 0.1, size=2)
    down, right = np.ogrid[-1 : 1 : len(image) * 1j, -1 : 1 : len(image) * 1j]
    light = rng.uniform(0.8, 1.05) * (1 + slope[0] * down + slope[1] * right)
    printed: Floats = np.clip(
        image * light[..., None] + rng.normal(0.0, 0.03, size=image.shape), 0.0, 1.0
    ).astype(np.float32)
    return printed.transpose(2, 0, 1)
