"""Tiles as points of a search space, a learned model of their times, and the tiles that it rates
best.

Built on scikit-learn's extremely randomised trees. With a few dozen measurements they did better
than Gaussian processes on recorded ones: a tile's time has cliffs (one block fewer fits, a warp
idles), which smooth functions blur. Nothing is measured here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..tiles import Tiles

TilePoint = tuple[int, ...]  # a tile's numbers, in the order of the choices
Floats = npt.NDArray[np.float64]
# further features of a tile that are known before it is measured: its bound, its registers …
Features = Callable[[TilePoint], Sequence[float]]

TREES = 32
# trees drawn anew for each proposal, so that proposals differ
TREES_PER_PROPOSAL = 4
# the share of proposals with one number fixed at random, since else all come from the best known
# valley
RESAMPLED = 0.5
EXCLUDED = 1e6  # added to exclude a tile: larger than the logarithm of any time


class Space:
    """The valid tiles of a kernel."""

    def __init__(self, tiles: Tiles) -> None:
        self.choices = tuple(tiles.choices.values())
        self.all = tuple(map(tiles.numbers, tiles))

    def sample(self, generator: random.Random, without: Collection[TilePoint]) -> TilePoint | None:
        """A random valid tile, or None if all are excluded."""
        left = [point for point in self.all if point not in without]
        return generator.choice(left) if left else None


class CostModel:
    """Predicts the time of a tile from the measured ones; failed tiles count as the slowest."""

    def __init__(self, tried: dict[TilePoint, float | None], features: Features) -> None:
        from sklearn.ensemble import ExtraTreesRegressor

        self._more_features = features
        slowest = max(ms for ms in tried.values() if ms is not None)
        times = [math.log(slowest if ms is None else ms) for ms in tried.values()]
        self._trees = ExtraTreesRegressor(n_estimators=TREES, random_state=0).fit(
            self._features(list(tried)), times
        )

    def predictions(self, points: Sequence[TilePoint]) -> Floats:
        """Each tree's prediction for each tile: (trees, tiles), logarithms of milliseconds."""
        features = self._features(points)
        return np.array(  # without checks, which are slow when repeated for each of 32 trees
            [tree.predict(features, check_input=False) for tree in self._trees.estimators_]
        )

    def _features(self, points: Sequence[TilePoint]) -> npt.NDArray[np.float32]:
        """The logarithm of each number, how often two divides it, and the further features."""
        logarithms = [[math.log2(1 + number) for number in point] for point in points]
        halvings = [[(number & -number).bit_length() for number in point] for point in points]
        more = [self._more_features(point) for point in points]
        return np.column_stack(
            [
                np.array(columns, dtype=np.float32).reshape(len(points), -1)
                for columns in (logarithms, halvings, more)
            ]
        )


def promising(
    model: CostModel, space: Space, tried: Collection[TilePoint], generator: random.Random
) -> Iterator[TilePoint]:
    """Untried valid tiles, each the best by some trees drawn anew, or with one number resampled."""
    pool = sorted(set(space.all) - set(tried))
    predicted = model.predictions(pool) if pool else np.empty((0, 0))
    numbers = np.array(pool)
    for _ in pool:
        trees = generator.sample(range(len(predicted)), TREES_PER_PROPOSAL)
        estimate = predicted[trees].mean(axis=0)
        if generator.random() < RESAMPLED:
            axis = generator.randrange(len(space.choices))
            number = generator.choice(space.choices[axis])
            estimate = estimate + EXCLUDED * (numbers[:, axis] != number)
        index = int(estimate.argmin())
        predicted[:, index] = np.inf
        yield pool[index]
