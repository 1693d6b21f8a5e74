"""Random recipes keep the invariants of the loop, and the checks detect violations."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from benchmarks.recipes import bench, invariants, random_recipe, subject, subjects
from paifuser_lab.steps import step_names
from paifuser_lab.steps.fold import Fold

SEED = 20261122


@pytest.mark.parametrize("index", [0, 3])
def test_random_recipes_violate_no_invariant(index, one_thread):
    names = subjects()
    chosen = names[(5 + index * 13) % len(names)]
    record = bench((chosen,), count=2, seed=SEED + index)
    assert not record.violations, record.violations
    assert len(record.rows) == 2


def test_every_step_is_drawn_sooner_or_later():
    work = subject("resnet18-digits-tiny")
    drawn = {step.kind for seed in range(80) for step in random_recipe(work, seed)}
    assert drawn == set(step_names())


def test_a_seed_always_draws_the_same_recipe():
    work = subject("vit-s-tiny")
    assert random_recipe(work, 7).to_text() == random_recipe(work, 7).to_text()
    assert len({random_recipe(work, seed).digest for seed in range(20)}) > 10


@pytest.fixture
def work():
    return subject("mobilenetv2-tiny")


def patch_fold(also, monkeypatch):
    """Make the step `fold` call a function after its work."""
    apply = Fold.apply

    def apply_and_more(self, draft):
        apply(self, draft)
        also(draft)

    monkeypatch.setattr(Fold, "apply", apply_and_more)


def checked(work, tmp_path):
    return invariants.check(work, lab.Recipe(["layout", "fold"]), 0, tmp_path / "saved")


def test_a_step_that_changes_the_user_s_model_is_detected(work, monkeypatch, tmp_path):
    patch_fold(lambda draft: next(draft.work.model.parameters()).data.mul_(1.0000001), monkeypatch)
    row = checked(work, tmp_path)
    assert (row.verdict, "own model" in row.note) == ("violated", True)


def test_a_step_that_is_not_deterministic_is_detected(work, monkeypatch, tmp_path):
    counted = iter(range(1, 100))
    patch_fold(
        lambda draft: next(draft.module.parameters()).data.add_(1e-7 * next(counted)), monkeypatch
    )
    row = checked(work, tmp_path)
    assert (row.verdict, row.note) == ("violated", "applied twice, it gives two hashes")


def test_a_recipe_that_raises_another_exception_is_detected(work, monkeypatch, tmp_path):
    apply = lab.apply

    def broken(work, recipe):
        if len(recipe) == 2:
            raise KeyError("conv1")
        return apply(work, recipe)

    monkeypatch.setattr(invariants, "apply", broken)
    row = checked(work, tmp_path)
    assert (row.verdict, row.note) == ("violated", "KeyError instead of a message: 'conv1'")


def test_a_folder_that_loads_as_another_model_is_detected(work, monkeypatch, tmp_path):
    saved = checked(work, tmp_path)
    assert not isinstance(saved, invariants.RecipeRow)
    other = invariants.Saved(saved.row, saved.folder, saved.weights, "another output")
    missing = invariants.Saved(saved.row, tmp_path / "nowhere", saved.weights, saved.output)
    row, first, second = invariants.loaded([saved, other, missing])
    assert (row.verdict, row.note) == ("holds", "")
    assert first.note == "loaded in a fresh process its output differs"
    assert second.note.startswith("a fresh process cannot load it: There is no folder")
