"""Tiles as points of a search space, a learned model of their times, and the tiles that it rates
best, by an evolutionary search.

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
POPULATION = 48
GENERATIONS = 2  # with more the proposals are too similar
EXPLORATION = 0.5  # weight of the trees' disagreement on a tile, in standard deviations
# trees drawn anew for each proposal, so that proposals differ
TREES_PER_PROPOSAL = 4
# the share of proposals with one number fixed at random, since else all come from the best known
# valley
RESAMPLED = 0.5
EXCLUDED = 1e6  # added to exclude a tile: larger than the logarithm of any time
MAX_LISTED = 2048  # combinations, valid or not, up to which all are listed; else they are sampled
MAX_DRAWS = 2000  # draws before a space counts as exhausted


class Space:
    """The valid tiles of a kernel; all of them are listed only where they are few."""

    def __init__(self, tiles: Tiles, max_listed: int = MAX_LISTED) -> None:
        self.tiles = tiles
        self.choices = tuple(tiles.choices.values())
        is_listed = math.prod(map(len, self.choices)) <= max_listed
        self.all = tuple(map(tiles.numbers, tiles)) if is_listed else None

    def is_valid(self, point: TilePoint) -> bool:
        """Whether the source takes the tile."""
        return self.tiles.is_valid(self.tiles.tile(point))

    def sample(
        self, generator: random.Random, without: Collection[TilePoint] = ()
    ) -> TilePoint | None:
        """A random valid tile, or None if all are excluded."""
        if self.all is not None:
            left = [point for point in self.all if point not in without]
            return generator.choice(left) if left else None
        for _ in range(MAX_DRAWS):
            point = tuple(generator.choice(numbers) for numbers in self.choices)
            if point not in without and self.is_valid(point):
                return point
        return None

    def mutate(self, point: TilePoint, generator: random.Random) -> TilePoint:
        """Replace one number by the next larger or smaller one, or by any; the result may be
        invalid.
        """
        index = generator.randrange(len(point))
        numbers = self.choices[index]
        if generator.random() < 0.5:
            position = numbers.index(point[index]) + generator.choice((-1, 1))
            number = numbers[min(max(position, 0), len(numbers) - 1)]
        else:
            number = generator.choice(numbers)
        return (*point[:index], number, *point[index + 1 :])

    def crossover(self, first: TilePoint, second: TilePoint, generator: random.Random) -> TilePoint:
        """Take each number from one of two points at random; the result may be invalid."""
        return tuple(generator.choice(pair) for pair in zip(first, second, strict=True))


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
    model: CostModel,
    space: Space,
    best: Sequence[TilePoint],
    tried: Collection[TilePoint],
    generator: random.Random,
) -> Iterator[TilePoint]:
    """Untried valid tiles, each the best by some trees drawn anew, or with one number resampled."""
    pool = sorted(_pool(model, space, best, generator) - set(tried))
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


def _pool(
    model: CostModel, space: Space, best: Sequence[TilePoint], generator: random.Random
) -> set[TilePoint]:
    """All tiles if they are few, else those that the evolution produces.

    A generation is the best of all before, their mutations and their crossovers; the first is the
    best measured ones and as many random ones as there is room for. Better parents are chosen more
    often.
    """
    if space.all is not None:
        return set(space.all)
    sampled = (space.sample(generator) for _ in range(POPULATION))
    scores = _scores(
        model, {*best[: POPULATION // 4], *(point for point in sampled if point is not None)}
    )
    for _ in range(GENERATIONS):
        parents = sorted(scores, key=scores.__getitem__)[:POPULATION]
        children = {_child(parents, space, generator) for _ in range(2 * POPULATION)}
        scores |= _scores(
            model, {point for point in children - scores.keys() if space.is_valid(point)}
        )
    return set(scores)


def _child(parents: Sequence[TilePoint], space: Space, generator: random.Random) -> TilePoint:
    first, second = (parents[int(len(parents) * generator.random() ** 2)] for _ in range(2))
    is_crossed = generator.random() < 0.5
    child = space.crossover(first, second, generator) if is_crossed else first
    return space.mutate(child, generator)


def _scores(model: CostModel, points: Collection[TilePoint]) -> dict[TilePoint, float]:
    """The optimistic estimate of each tile; lower is better."""
    if not points:
        return {}
    ordered = sorted(points)  # the order of a set differs between processes
    predicted = model.predictions(ordered)
    optimistic = predicted.mean(axis=0) - EXPLORATION * predicted.std(axis=0)
    return dict(zip(ordered, optimistic.tolist(), strict=True))
