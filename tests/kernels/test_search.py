"""The search for a tile, held to measurements that others made of every tile there was: see
tests/support/recorded/README.md.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice, product
from math import log
from pathlib import Path
from statistics import mean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels.tiles import Tiles
from paifuser_lab.kernels.tuning.evolution import CostModel, promising
from paifuser_lab.kernels.tuning.search import FAILURES_TO_STOP, START, finals, search
from paifuser_lab.kernels.tuning.space import Space

RECORDED = Path(__file__).parent.parent / "support" / "recorded"
SEEDS = 10


@dataclass(frozen=True)
class Recorded:
    """A kernel on a device, every sound tile of it measured; None is a tile that did not compile or
    run.
    """

    tiles: Tiles
    ms: dict[tuple[int, ...], float | None]

    def measure(self, tile):
        time = self.ms[tuple(tile.values())]
        if time is None:
            raise KernelError("it does not run")
        return time

    def loss(self, times):
        """The mean of logarithms of times, in parts of the best one."""
        best = min(time for time in self.ms.values() if time is not None)
        return mean(log(time / best) for time in times)

    def by_chance(self, budget):
        """The best times of random searches."""
        cuts = sorted(self.ms)
        drawn = (random.Random(seed).sample(cuts, budget) for seed in range(300))
        return [min(self.ms[cut] for cut in cuts if self.ms[cut] is not None) for cuts in drawn]


@cache
def recorded(name):
    file = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    cuts = list(product(*file["choices"].values()))
    ms = {
        cuts[index]: time for index, time in zip(accumulate(file["steps"]), file["ms"], strict=True)
    }
    choices = {parameter: tuple(values) for parameter, values in file["choices"].items()}
    default = dict(zip(choices, next(iter(ms)), strict=True))
    return Recorded(Tiles(choices, default, lambda tile: tuple(tile.values()) in ms), ms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("convolution-a100", {60: 0.75, 120: 0.6, 240: 0.3}),
        ("convolution-a6000", {60: 0.9, 120: 0.8, 240: 0.75}),
        ("dedispersion-a100", {60: 0.6, 120: 0.5, 240: 0.4}),
        ("dedispersion-a6000", {60: 0.6, 120: 0.4, 240: 0.3}),
    ],
)
def test_the_search_beats_random_search_at_every_budget(name, parts):
    """Its median best is faster, and how much slower than the best of all it is on average is but a
    part of random search's.
    """
    space = recorded(name)
    found = [
        search(space.tiles, space.measure, budget=max(parts), seed=seed) for seed in range(SEEDS)
    ]
    for budget, part in parts.items():
        ours = [one.after(budget).best.ms for one in found]
        chance = space.by_chance(budget)
        assert median(ours) < median(chance), budget
        assert space.loss(ours) < part * space.loss(chance), budget


# how it searches


NAMES = st.lists(
    st.lists(st.integers(0, 64), min_size=1, max_size=5, unique=True).map(sorted),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None)
@given(NAMES, st.integers(1, 40), st.integers(0, 3), st.sampled_from([0, 2048]))
def test_only_sound_tiles_are_tried_each_once_and_no_more_than_the_budget(
    choices, budget, seed, counted
):
    named = {f"n{index}": tuple(numbers) for index, numbers in enumerate(choices)}
    tiles = Tiles(named, {}, lambda tile: sum(tile.values()) % 3 != 1)
    sound = {tuple(tile.values()) for tile in tiles}
    found = search(
        tiles, lambda tile: 1.0 + sum(tile.values()), budget=budget, seed=seed, counted=counted
    )
    tried = [tuple(one.tile.values()) for one in found.attempts]
    assert len(tried) == len(set(tried)) and set(tried) <= sound
    assert len(tried) == min(budget, len(sound)) if counted else len(tried) <= budget


def test_the_same_seed_searches_the_same_way():
    space = recorded("convolution-a100")
    one, other = (search(space.tiles, space.measure, budget=40, seed=3) for _ in range(2))
    assert one == other
    assert one.attempts != search(space.tiles, space.measure, budget=40, seed=4).attempts


def small():
    return Tiles({"a": (1, 2, 4, 8, 16), "b": (1, 2, 3, 4, 5, 6)}, {"a": 4, "b": 3})


def test_what_is_named_first_is_tried_first_and_what_is_unsound_is_not():
    found = search(
        small(),
        lambda tile: 1.0,
        budget=3,
        first=[{"a": 8, "b": 2}, {"a": 3, "b": 2}, {"a": 1, "b": 1}],
    )
    assert [one.tile for one in found.attempts[:2]] == [{"a": 8, "b": 2}, {"a": 1, "b": 1}]
    assert found.ended_by == "the budget is spent"


def test_a_tile_that_fails_is_noted_and_the_search_goes_on():
    def measure(tile):
        if tile["a"] == 4:
            raise RuntimeError("CUDA error: misaligned address\nand more")
        return float("nan") if tile["a"] == 8 else tile["b"]

    found = search(small(), measure, budget=30)
    failures = {one.tile["a"]: one.failure for one in found.attempts if one.failure}
    assert failures == {4: "RuntimeError: CUDA error: misaligned address", 8: "its time is nan ms"}
    assert len(found.attempts) == 30 and found.best.tile["b"] == 1


def test_an_interrupted_search_keeps_what_it_has():
    times = iter([3.0, 2.0])

    def measure(tile):
        try:
            return next(times)
        except StopIteration:
            raise KeyboardInterrupt from None

    found = search(small(), measure, budget=30)
    assert [one.ms for one in found.attempts] == [
        3.0,
        2.0,
    ] and found.ended_by == "it was interrupted"


def test_a_broken_device_ends_the_search_and_a_late_search_ends_after_one_more():
    def broken(tile):
        raise RuntimeError("unspecified launch failure")

    found = search(small(), broken, budget=30)
    assert (
        len(found.attempts) == FAILURES_TO_STOP
        and "unspecified launch failure" in found.ended_by
        and found.best is None
    )
    assert len(search(small(), lambda tile: 1.0, budget=30, seconds=-1).attempts) == 1
    with pytest.raises(KernelError, match="at least one tile"):
        search(small(), lambda tile: 1.0, budget=0)


def test_what_is_known_beforehand_is_learned_from():
    """The numbers alone say nothing here; what is known says all."""
    tiles = Tiles({"a": tuple(range(40)), "b": tuple(range(40))}, {})
    hidden = {cut: random.Random(str(cut)).random() for cut in product(*tiles.choices.values())}

    def tried(**how):
        runs = [
            search(
                tiles,
                lambda t: 0.1 + hidden[tuple(t.values())],
                budget=START + 30,
                seed=seed,
                **how,
            )
            for seed in range(5)
        ]
        return mean(run.best.ms for run in runs)

    assert tried(known=lambda cut: (hidden[cut],)) < 0.103 < tried()


def test_evolution_comes_by_what_the_model_likes_best():
    space = Space(recorded("convolution-a100").tiles)
    assert space.all is None, "the space is too large to look at all of it"
    ms = recorded("convolution-a100").ms
    known = {cut: ms[cut] for cut in random.Random(0).sample(sorted(ms), 300)}
    model = CostModel(known, lambda cut: ())
    everything = sorted(set(ms) - set(known))
    guessed = dict(zip(everything, model.each(everything).mean(axis=0), strict=True))
    best = sorted((cut for cut in known if known[cut] is not None), key=known.__getitem__)
    found = list(promising(model, space, best, known, random.Random(0)))
    assert len(found) == len(set(found))
    assert not set(found) & set(known)
    rank = sorted(guessed.values()).index(guessed[found[0]])
    assert rank < len(everything) / 50


def test_some_proposals_are_where_the_model_expects_nothing():
    """Else a search stays in the valley that it came to first."""
    space = Space(Tiles({"a": tuple(range(64)), "b": (0, 1)}, {}))
    known = {(a, b): 1.0 + 9 * b for a, b in product(range(0, 64, 2), (0, 1))}
    found = list(
        islice(promising(CostModel(known, lambda cut: ()), space, [], known, random.Random(0)), 24)
    )
    assert 0 < sum(b for _, b in found) < 12


def test_the_finals_give_the_best_more_rounds_and_never_lose_the_rival():
    rounds_of = []
    ms = {1: 3.0, 2: 1.0, 3: 2.0, 4: 4.0}

    def in_turn(field, rounds):
        rounds_of.append((len(field), rounds))
        return [ms[tile["a"]] for tile in field]

    field = [{"a": number} for number in (1, 2, 3)]
    assert finals(field, in_turn, rival={"a": 4}, rounds=5) == ({"a": 2}, 1.0, 4.0)
    assert rounds_of == [(4, 5), (3, 10), (2, 20)]
    assert finals(field, in_turn, rival={"a": 2}) == ({"a": 2}, 1.0, 1.0)
    assert finals([{"a": 4}], in_turn, rival={"a": 4}) == ({"a": 4}, 4.0, 4.0)
