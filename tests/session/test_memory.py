"""A session keeps models only in one bounded cache; its history holds recipes and records."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakSet

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.session import Session
from paifuser_lab.variant import cache
from tests.support.bench import TIMEOUT_S
from tests.support.models import Small, images

CACHE_SIZE = 3
FORMATS = ("bf16", "fp16", "int8-weights", "int4-weights")
pytestmark = pytest.mark.usefixtures("one_thread")


class Counted(Small):
    """A model whose living copies are counted."""

    living: WeakSet[Counted] = WeakSet()

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        Counted.living.add(self)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "MOST_KEPT", CACHE_SIZE)
    monkeypatch.setattr(Counted, "living", WeakSet())
    session = Session(lab.Workload(Counted(), images(), name="small"), rounds=1, seconds=0.05)
    session.wait(TIMEOUT_S)
    yield session
    session.close()
    session.wait(TIMEOUT_S)


def recipes() -> list[lab.Recipe]:
    """Six different recipes of two steps, twice as many as are kept; each step makes a model."""
    layers = [{"conv": first, "head": second} for first in FORMATS for second in FORMATS]
    recipes = [
        lab.Recipe([step, {"precision": {"layers": formats}}])
        for formats in layers
        for step in ("layout", "fold")
    ]
    return recipes[: 2 * CACHE_SIZE]


def test_many_recipes_leave_no_more_models_than_the_cache_holds(session):
    for recipe in recipes():
        session.set_recipe(recipe)
        state = session.wait(TIMEOUT_S)
        assert state.error is None and state.variant.recipe == recipe
        del state
        gc.collect()
        assert len(Counted.living) <= 1 + CACHE_SIZE, "the session's own copy and the cached models"
    assert len(session._history) == 1 + len(recipes()) and len(session._own.variants) == CACHE_SIZE


def test_undo_applies_an_evicted_recipe_again_bit_for_bit(session):
    hashes: list[str] = []
    chosen = recipes()
    for recipe in chosen:
        session.set_recipe(recipe)
        hashes.append(weights_hash(session.wait(TIMEOUT_S).variant.module))
    measured = session.state.comparison
    for recipe, before in reversed(list(zip(chosen[:-1], hashes[:-1], strict=True))):
        assert session.undo()
        assert session.state.comparison is not None, "records are kept longer than models"
        state = session.wait(TIMEOUT_S)
        assert state.variant.recipe == recipe and weights_hash(state.variant.module) == before
    while session.redo():
        pass
    state = session.wait(TIMEOUT_S)
    assert state.comparison is measured and weights_hash(state.variant.module) == hashes[-1]
    with torch.no_grad():
        assert torch.isfinite(state.variant.model(images())).all()


def test_a_cached_variant_is_shown_at_once_with_the_original_workload(session):
    session.choose("fold")
    variant = session.wait(TIMEOUT_S).variant
    session.choose("layout")
    session.wait(TIMEOUT_S)
    session.undo()
    shown = session.state.variant
    assert shown is not None and shown.module is variant.module and shown.work is session.work
    session.wait(TIMEOUT_S)


def test_freed_memory_is_returned_when_a_model_is_evicted(session, monkeypatch):
    returned: list[int] = []
    monkeypatch.setattr(
        cache, "return_free_memory", lambda: returned.append(len(session._own.variants))
    )
    for recipe in recipes()[:2]:
        session.set_recipe(recipe)
        session.wait(TIMEOUT_S)
    assert returned and set(returned) == {CACHE_SIZE}, "with an eviction only, and after it"
    monkeypatch.undo()
    cache.return_free_memory()
