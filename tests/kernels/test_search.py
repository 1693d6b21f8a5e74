"""The search for a tile, tested on published measurements of every valid tile of two kernels: see
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
from paifuser_lab.kernels.tuning.evolution import CostModel, Space, promising
from paifuser_lab.kernels.tuning.search import (
    INITIAL_TILES,
    MAX_FAILURES,
    Search,
    finals,
    search,
)

RECORDED = Path(__file__).parent.parent / "support" / "recorded"
SEEDS = 4


@dataclass(frozen=True)
class Recorded:
    """A kernel on a device, every valid tile measured; None is a tile that did not run."""

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

    def random_search(self, budget):
        """The best times of random searches."""
        points = sorted(self.ms)
        samples = (random.Random(seed).sample(points, budget) for seed in range(300))
        return [min(self.ms[p] for p in sample if self.ms[p] is not None) for sample in samples]


@cache
def recorded(name):
    file = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    points = list(product(*file["choices"].values()))
    ms = {
        points[index]: time
        for index, time in zip(accumulate(file["steps"]), file["ms"], strict=True)
    }
    choices = {parameter: tuple(values) for parameter, values in file["choices"].items()}
    default = dict(zip(choices, next(iter(ms)), strict=True))
    return Recorded(Tiles(choices, default, lambda tile: tuple(tile.values()) in ms), ms)


def after(result, count):
    """The search as it was after that many attempts."""
    return Search(attempts=result.attempts[:count], ended_by="")


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
    """Its median best time is lower, and its mean slowdown against the best tile is only a part of
    random search's.
    """
    space = recorded(name)
    results = [
        search(space.tiles, space.measure, budget=max(parts), seed=seed) for seed in range(SEEDS)
    ]
    for budget, part in parts.items():
        ours = [after(result, budget).ranked[0].ms for result in results]
        sampled = space.random_search(budget)
        assert median(ours) < median(sampled), budget
        assert space.loss(ours) < part * space.loss(sampled), budget


# how it searches


NAMES = st.lists(
    st.lists(st.integers(0, 64), min_size=1, max_size=5, unique=True).map(sorted),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None)
@given(NAMES, st.integers(1, 40), st.integers(0, 3), st.sampled_from([0, 2048]))
def test_only_valid_tiles_are_tried_each_once_and_within_the_budget(
    choices, budget, seed, max_listed
):
    named = {f"n{index}": tuple(numbers) for index, numbers in enumerate(choices)}
    tiles = Tiles(named, {}, lambda tile: sum(tile.values()) % 3 != 1)
    valid = {tuple(tile.values()) for tile in tiles}
    result = search(
        tiles,
        lambda tile: 1.0 + sum(tile.values()),
        budget=budget,
        seed=seed,
        max_listed=max_listed,
    )
    tried = [tuple(attempt.tile.values()) for attempt in result.attempts]
    assert len(tried) == len(set(tried)) and set(tried) <= valid
    assert len(tried) == min(budget, len(valid)) if max_listed else len(tried) <= budget


def test_the_same_seed_searches_the_same_way():
    space = recorded("convolution-a100")
    first, second = (search(space.tiles, space.measure, budget=40, seed=3) for _ in range(2))
    assert first == second
    assert first.attempts != search(space.tiles, space.measure, budget=40, seed=4).attempts


def small():
    return Tiles({"a": (1, 2, 4, 8, 16), "b": (1, 2, 3, 4, 5, 6)}, {"a": 4, "b": 3})


def test_the_first_tiles_are_tried_first_and_invalid_ones_are_not():
    result = search(
        small(),
        lambda tile: 1.0,
        budget=3,
        first=[{"a": 8, "b": 2}, {"a": 3, "b": 2}, {"a": 1, "b": 1}],
    )
    tiles = [attempt.tile for attempt in result.attempts[:2]]
    assert tiles == [{"a": 8, "b": 2}, {"a": 1, "b": 1}]
    assert result.ended_by == "the budget is spent"


def test_a_tile_that_fails_is_recorded_and_the_search_continues():
    def measure(tile):
        if tile["a"] == 4:
            raise RuntimeError("CUDA error: misaligned address\nand more")
        return float("nan") if tile["a"] == 8 else tile["b"]

    result = search(small(), measure, budget=30)
    failed = [attempt for attempt in result.attempts if attempt.failure]
    failures = {attempt.tile["a"]: attempt.failure for attempt in failed}
    assert failures == {4: "RuntimeError: CUDA error: misaligned address", 8: "its time is nan ms"}
    assert len(result.attempts) == 30 and result.ranked[0].tile["b"] == 1


def test_an_interrupted_search_keeps_its_results():
    times = iter([3.0, 2.0])

    def measure(tile):
        try:
            return next(times)
        except StopIteration:
            raise KeyboardInterrupt from None

    result = search(small(), measure, budget=30)
    assert [attempt.ms for attempt in result.attempts] == [3.0, 2.0]
    assert result.ended_by == "it was interrupted"


def test_a_broken_device_ends_the_search_and_a_late_search_ends_after_one_more():
    def broken(tile):
        raise RuntimeError("unspecified launch failure")

    result = search(small(), broken, budget=30)
    assert (
        len(result.attempts) == MAX_FAILURES
        and "unspecified launch failure" in result.ended_by
        and not result.ranked
    )
    assert len(search(small(), lambda tile: 1.0, budget=30, seconds=-1).attempts) == 1
    with pytest.raises(KernelError, match="at least one tile"):
        search(small(), lambda tile: 1.0, budget=0)


def test_the_model_learns_from_further_features():
    """The tile's own numbers predict nothing here; the further feature predicts everything."""
    tiles = Tiles({"a": tuple(range(40)), "b": tuple(range(40))}, {})
    hidden = {
        point: random.Random(str(point)).random() for point in product(*tiles.choices.values())
    }

    def mean_best(**options):
        runs = [
            search(
                tiles,
                lambda tile: 0.1 + hidden[tuple(tile.values())],
                budget=INITIAL_TILES + 30,
                seed=seed,
                **options,
            )
            for seed in range(5)
        ]
        return mean(run.ranked[0].ms for run in runs)

    assert mean_best(features=lambda point: (hidden[point],)) < 0.103 < mean_best()


def test_evolution_finds_the_tiles_that_the_model_rates_best():
    space = Space(recorded("convolution-a100").tiles)
    assert space.all is None, "the space is too large to list"
    ms = recorded("convolution-a100").ms
    known = {point: ms[point] for point in random.Random(0).sample(sorted(ms), 300)}
    model = CostModel(known, lambda point: ())
    untried = sorted(set(ms) - set(known))
    estimates = dict(zip(untried, model.predictions(untried).mean(axis=0), strict=True))
    best = sorted((point for point in known if known[point] is not None), key=known.__getitem__)
    proposals = list(promising(model, space, best, known, random.Random(0)))
    assert len(proposals) == len(set(proposals))
    assert not set(proposals) & set(known)
    rank = sorted(estimates.values()).index(estimates[proposals[0]])
    assert rank < len(untried) / 50


def test_some_proposals_are_far_from_the_best_valley():
    """Otherwise a search stays in the first valley that it finds."""
    space = Space(Tiles({"a": tuple(range(64)), "b": (0, 1)}, {}))
    known = {(a, b): 1.0 + 9 * b for a, b in product(range(0, 64, 2), (0, 1))}
    model = CostModel(known, lambda point: ())
    proposals = list(islice(promising(model, space, [], known, random.Random(0)), 24))
    assert 0 < sum(b for _, b in proposals) < 12


def test_the_finals_time_the_best_for_more_rounds_and_always_with_the_rival():
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
