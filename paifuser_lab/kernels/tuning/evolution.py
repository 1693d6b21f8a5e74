"""A learned model of a tile's time, and the tiles that it rates best, found by evolution.

Stands on scikit-learn's extremely randomised trees. With the few dozen measurements that there are
they did better than Gaussian processes on recorded ones: a tile's time has cliffs (one block fewer
fits, a warp has nothing to do), which smooth functions blur. Nothing is measured here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from math import log, log2

import numpy as np
import numpy.typing as npt

from .space import Space, TilePoint

Floats = npt.NDArray[np.float64]
Known = Callable[
    [TilePoint], Sequence[float]
]  # what else is known of a tile before it is measured: its bound, its registers …

TREES = 32
POPULATION = 48
GENERATIONS = 2  # with more the proposals are too much alike
EXPLORATION = 0.5  # how much a tile gains from the trees not agreeing on it, in their deviations
# trees that rate a tile at the end: another few each time, so that those proposed are not all
# alike
JUDGES = 4
# the share of proposals that must have one number drawn at random: else all come from the best
# valley that is known
RESAMPLED = 0.5
FAR = 1e6  # worse than any time's logarithm


class CostModel:
    """Learned from the tiles that were measured; one that failed counts as the slowest of them."""

    def __init__(self, tried: dict[TilePoint, float | None], known: Known) -> None:
        from sklearn.ensemble import ExtraTreesRegressor

        self._known = known
        slowest = max(ms for ms in tried.values() if ms is not None)
        times = [log(slowest if ms is None else ms) for ms in tried.values()]
        self._trees = ExtraTreesRegressor(n_estimators=TREES, random_state=0).fit(
            self._features(list(tried)), times
        )

    def each(self, points: Sequence[TilePoint]) -> Floats:
        """What each tree expects of each tile: (trees, tiles), logarithms of milliseconds."""
        features = self._features(points)
        return np.array(
            [tree.predict(features, check_input=False) for tree in self._trees.estimators_]
        )  # checked 32 times, it is slow

    def _features(self, points: Sequence[TilePoint]) -> npt.NDArray[np.float32]:
        """Of each number the logarithm and how often two divides it, and what else is known."""
        logarithms = [[log2(1 + number) for number in point] for point in points]
        halvings = [[(number & -number).bit_length() for number in point] for point in points]
        known = [self._known(point) for point in points]
        return np.column_stack(
            [
                np.array(one, dtype=np.float32).reshape(len(points), -1)
                for one in (logarithms, halvings, known)
            ]
        )


def promising(
    model: CostModel,
    space: Space,
    best: Sequence[TilePoint],
    tried: Collection[TilePoint],
    generator: random.Random,
) -> Iterator[TilePoint]:
    """Untried sound tiles, each the best by some trees drawn anew, or one resampled."""
    pool = sorted(_pool(model, space, best, generator) - set(tried))
    expected = model.each(pool) if pool else np.empty((0, 0))
    numbers = np.array(pool)
    for _ in pool:
        judges = generator.sample(range(len(expected)), JUDGES)
        guess = expected[judges].mean(axis=0)
        if generator.random() < RESAMPLED:
            place = generator.randrange(len(space.choices))
            guess = guess + FAR * (numbers[:, place] != generator.choice(space.choices[place]))
        index = int(guess.argmin())
        expected[:, index] = np.inf
        yield pool[index]


def _pool(
    model: CostModel, space: Space, best: Sequence[TilePoint], generator: random.Random
) -> set[TilePoint]:
    """All tiles where they are few, else those that evolution comes by.

    A generation is the best of all before, their mutations and their crossings; the first is the
    best that were measured and as many drawn at random as there is room for. Parents are chosen the
    more often the better they are.
    """
    if space.all is not None:
        return set(space.all)
    drawn = (space.drawn(generator) for _ in range(POPULATION))
    found = _graded(
        model, {*best[: POPULATION // 4], *(point for point in drawn if point is not None)}
    )
    for _ in range(GENERATIONS):
        parents = sorted(found, key=found.__getitem__)[:POPULATION]
        children = {_child(parents, space, generator) for _ in range(2 * POPULATION)}
        found |= _graded(
            model, {point for point in children - found.keys() if space.is_sound(point)}
        )
    return set(found)


def _child(parents: Sequence[TilePoint], space: Space, generator: random.Random) -> TilePoint:
    one, other = (parents[int(len(parents) * generator.random() ** 2)] for _ in range(2))
    return space.mutated(
        space.crossed(one, other, generator) if generator.random() < 0.5 else one, generator
    )


def _graded(model: CostModel, points: Collection[TilePoint]) -> dict[TilePoint, float]:
    """What to expect of each, with hope: lower is better."""
    if not points:
        return {}
    ordered = sorted(points)  # sets have an order of their own in each process
    each = model.each(ordered)
    return dict(
        zip(ordered, (each.mean(axis=0) - EXPLORATION * each.std(axis=0)).tolist(), strict=True)
    )
