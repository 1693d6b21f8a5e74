"""Random recipes leave true what the loop promises, and the checks notice when they do not."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from paifuser_lab.bench.recipes import bench, fresh, invariants, random_recipe, subject, subjects
from paifuser_lab.steps import step_names
from paifuser_lab.steps.fold import Fold

SEED = 20261122


@pytest.mark.parametrize("index", range(4))
def test_random_recipes_break_no_promise(index, one_thread):
    names = subjects()
    chosen = names[(5 + index * 13) % len(names)]
    found = bench((chosen,), count=2, seed=SEED + index)
    assert not found.violations, found.violations
    assert len(found.rows) == 2


def test_every_step_is_drawn_sooner_or_later():
    work = subject("resnet18-digits-tiny")
    drawn = {step.kind for seed in range(80) for step in random_recipe(work, seed)}
    assert drawn == set(step_names())


def test_one_seed_draws_one_recipe():
    work = subject("vit-s-tiny")
    assert random_recipe(work, 7).to_text() == random_recipe(work, 7).to_text()
    assert len({random_recipe(work, seed).digest for seed in range(20)}) > 10


@pytest.fixture
def work():
    return subject("mobilenetv2-tiny")


def fold_that(also, monkeypatch):
    """The step fold, which does one thing more than it should."""
    apply = Fold.apply

    def spoiled(self, draft):
        apply(self, draft)
        also(draft)

    monkeypatch.setattr(Fold, "apply", spoiled)


def found(work, tmp_path):
    return invariants.check(work, lab.Recipe(["layout", "fold"]), 0, tmp_path / "saved")


def test_a_step_that_touches_the_user_s_model_is_noticed(work, monkeypatch, tmp_path):
    fold_that(lambda draft: next(draft.work.model.parameters()).data.mul_(1.0000001), monkeypatch)
    row = found(work, tmp_path)
    assert (row.verdict, "own model" in row.note) == ("violated", True)


def test_a_step_that_chooses_by_chance_is_noticed(work, monkeypatch, tmp_path):
    counted = iter(range(1, 100))
    fold_that(
        lambda draft: next(draft.module.parameters()).data.add_(1e-7 * next(counted)), monkeypatch
    )
    row = found(work, tmp_path)
    assert (row.verdict, row.note) == ("violated", "applied twice, it gives two hashes")


def test_a_recipe_that_ends_in_a_traceback_is_noticed(work, monkeypatch, tmp_path):
    apply = lab.apply

    def broken(work, recipe):
        if len(recipe) == 2:
            raise KeyError("conv1")
        return apply(work, recipe)

    monkeypatch.setattr(invariants, "apply", broken)
    row = found(work, tmp_path)
    assert (row.verdict, row.note) == ("violated", "KeyError instead of a message: 'conv1'")


def test_a_folder_that_loads_as_another_model_is_noticed(work, monkeypatch, tmp_path):
    saved = found(work, tmp_path)
    assert not isinstance(saved, invariants.RecipeRow)
    (sound,) = fresh.loaded([saved])
    assert (sound.verdict, sound.note) == ("holds", "")
    other = invariants.Saved(saved.row, saved.folder, saved.weights, "another answer")
    missing = invariants.Saved(saved.row, tmp_path / "nowhere", saved.weights, saved.answer)
    first, second = fresh.loaded([other, missing])
    assert first.note == "loaded in a fresh process it answers otherwise"
    assert second.note.startswith("a fresh process cannot load it: There is no folder")
