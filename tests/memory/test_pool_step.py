"""The step `pool`: in force during the calls of its variant, through engines, files and copies."""

from __future__ import annotations

import copy

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.engines import Engine
from paifuser_lab.errors import PoolError, RecipeError, StepError
from paifuser_lab.memory.pools import HeapPool, heap_obstacle
from paifuser_lab.steps import pool as pool_step
from paifuser_lab.workload import running
from tests.support.models import Small, images

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle()),
]
SEEN: list[bool] = []


class Watched(Small):
    """Remembers at each call whether a pool is in force."""

    def forward(self, images):
        SEEN.append(any(pool.statistics.is_in_force for pool in POOLS))
        return super().forward(images)


POOLS: list[HeapPool] = []


@pytest.fixture(autouse=True)
def made_pools(monkeypatch):
    """Every pool that a step makes."""
    SEEN.clear()
    POOLS.clear()
    make = pool_step.memory_pool

    def memory_pool(*arguments, **options):
        POOLS.append(make(*arguments, **options))
        return POOLS[-1]

    monkeypatch.setattr(pool_step, "memory_pool", memory_pool)


def watched():
    return Workload(Watched().eval(), images(), name="watched")


def call(model):
    SEEN.clear()
    torch.manual_seed(1)
    with torch.no_grad():
        return model(images())


def test_the_pool_is_in_force_during_calls_of_the_variant_alone():
    work = watched()
    variant = lab.apply(work, Recipe([{"pool": "2 GB"}]))
    assert torch.equal(call(variant.model), call(work.model))
    call(variant.model)
    assert SEEN == [True] and not variant.pool.statistics.is_in_force
    assert variant.pool.limit_bytes == 2 * 10**9 and variant.pool.name == "watched"
    call(variant.module)
    assert SEEN == [False], "the module itself is as it was"
    call(work.model)
    assert SEEN == [False]
    assert variant.module is not variant.model and variant.reports[0].relative_error == 0
    assert "in force during each call" in variant.notes[0]


def test_the_pool_is_left_when_the_model_fails():
    variant = lab.apply(watched(), Recipe(["pool"]))
    with pytest.raises(RuntimeError):
        variant.model(torch.zeros(1, 2, 3, 4))
    assert not variant.pool.statistics.is_in_force


@pytest.mark.parametrize("steps", [["pool", "fold"], ["fold", "pool"]])
def test_other_steps_before_or_after_keep_the_pool(steps):
    variant = lab.apply(watched(), Recipe(steps))
    call(variant.model)
    assert SEEN == [True] and variant.pool is POOLS[-1] and len(POOLS) == 1
    assert not variant.has_own_threads, "torch's number of threads applies"
    assert variant.workload.model is variant.module, "tools see its layers by their names"


def test_an_engine_runs_in_the_pool_with_its_own_threads():
    work = watched()
    variant = lab.apply(work, Recipe(["pool", {"backend": {"name": "eager", "threads": 1}}]))
    call(variant.model)
    assert SEEN == [True] and isinstance(variant.model, Engine) and variant.own_threads == 1
    alone = lab.apply(work, Recipe([{"backend": {"name": "eager", "threads": 1}}]))
    call(alone.model)
    assert SEEN == [False] and alone.pool is None
    call(lab.apply(work, Recipe([])).model)
    assert SEEN == [False]


def test_a_saved_variant_has_its_pool_when_it_is_loaded(tmp_path):
    work = watched()
    lab.apply(work, Recipe(["fold", {"pool": {"limit": "1 GiB"}}])).save(tmp_path / "mine")
    variant = lab.Variant.load(tmp_path / "mine", work)
    call(variant.model)
    assert SEEN == [True] and variant.pool.limit_bytes == 1 << 30
    loaded = lab.load(tmp_path / "mine", work=work)
    call(loaded.model)
    assert SEEN == [True]
    assert torch.equal(call(loaded.model), call(variant.model))


def test_a_loaded_variant_runs_without_its_pool_where_there_is_none(tmp_path, monkeypatch):
    work = watched()
    lab.apply(work, Recipe(["pool"])).save(tmp_path / "mine")

    def refused(*_, **__):
        raise PoolError("There is none here.")

    monkeypatch.setattr(pool_step, "memory_pool", refused)
    loaded = lab.Variant.load(tmp_path / "mine", work)
    assert "not in force here: There is none here." in loaded.notes
    assert loaded.pool is None and torch.equal(call(loaded.model), call(work.model))
    with pytest.raises(StepError, match=r"memory pool.*cannot be applied.*There is none here"):
        lab.apply(watched(), Recipe(["pool"]))


def test_a_copy_of_the_model_shares_its_pool():
    variant = lab.apply(watched(), Recipe(["pool"]))
    with running(variant.model):
        copied = copy.deepcopy(variant.model)
    call(copied)
    assert SEEN == [True] and copied.module is not variant.module
    again = lab.apply(Workload(copied, images()), Recipe(["fold"]))
    call(again.model)
    assert SEEN == [True]


@pytest.mark.parametrize("limit", ["2 GBs", 0, True, -1])
def test_an_impossible_limit_is_refused_in_the_recipe(limit):
    with pytest.raises(RecipeError, match="step 'pool', limit = "):
        Recipe([{"pool": {"limit": limit}}])


def test_a_step_that_changes_layers_goes_before_those_that_must_follow_it_whatever_the_pool():
    recipe = Recipe(["fuse", "pool"])
    assert [step.kind for step in recipe.with_step("fold")] == ["fold", "fuse", "pool"]
    assert [step.kind for step in recipe.with_step("reuse")] == ["fuse", "pool", "reuse"]
    with pytest.raises(RecipeError, match="'fuse' stands before 'fold', which changes layers"):
        Recipe(["fuse", "pool", "fold"])
    with pytest.raises(RecipeError, match="no step can follow it"):
        Recipe([{"backend": "eager"}, "pool"])
