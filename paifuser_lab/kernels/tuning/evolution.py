"""The tiles that a cost model thinks best, found by evolution: nothing is measured here."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from .model import CostModel
from .space import Cut, Space

POPULATION = 48
GENERATIONS = 2  # with more the proposals are too much alike
CURIOSITY = 0.5  # how much a tile gains from the trees not agreeing on it, in their deviations
# trees that judge a tile at the end: another few each time, so that those proposed are not all
# alike
JURY = 4
# the share of proposals that must have one number drawn by chance: else all come from the best
# valley that is known
ASIDE = 0.5
FAR = 1e6  # worse than any time's logarithm


def promising(
    model: CostModel,
    space: Space,
    best: Sequence[Cut],
    tried: Collection[Cut],
    chance: random.Random,
) -> Iterator[Cut]:
    """Untried sound tiles one after the other, each the best by a jury of its own, or the best with
    a number drawn by chance.
    """
    pool = sorted(_pool(model, space, best, chance) - set(tried))
    expected = model.each(pool) if pool else np.empty((0, 0))
    numbers = np.array(pool)
    for _ in pool:
        jury = chance.sample(range(len(expected)), JURY)
        guess = expected[jury].mean(axis=0)
        if chance.random() < ASIDE:
            place = chance.randrange(len(space.choices))
            guess = guess + FAR * (numbers[:, place] != chance.choice(space.choices[place]))
        index = int(guess.argmin())
        expected[:, index] = np.inf
        yield pool[index]


def _pool(model: CostModel, space: Space, best: Sequence[Cut], chance: random.Random) -> set[Cut]:
    """All tiles where they are few, else those that evolution comes by.

    A generation is the best of all before, their mutations and their crossings; the first is the
    best that were measured and as many drawn by chance as there is room for. Parents are chosen the
    more often the better they are.
    """
    if space.all is not None:
        return set(space.all)
    drawn = (space.drawn(chance) for _ in range(POPULATION))
    found = _graded(model, {*best[: POPULATION // 4], *(cut for cut in drawn if cut is not None)})
    for _ in range(GENERATIONS):
        parents = sorted(found, key=found.__getitem__)[:POPULATION]
        children = {_child(parents, space, chance) for _ in range(2 * POPULATION)}
        found |= _graded(model, {cut for cut in children - found.keys() if space.is_sound(cut)})
    return set(found)


def _child(parents: Sequence[Cut], space: Space, chance: random.Random) -> Cut:
    one, other = (parents[int(len(parents) * chance.random() ** 2)] for _ in range(2))
    return space.mutated(
        space.crossed(one, other, chance) if chance.random() < 0.5 else one, chance
    )


def _graded(model: CostModel, cuts: Collection[Cut]) -> dict[Cut, float]:
    """What to expect of each, with hope: lower is better."""
    if not cuts:
        return {}
    ordered = sorted(cuts)  # sets have an order of their own in each process
    each = model.each(ordered)
    return dict(
        zip(ordered, (each.mean(axis=0) - CURIOSITY * each.std(axis=0)).tolist(), strict=True)
    )
