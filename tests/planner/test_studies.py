"""Studies: the database from which a search goes on, and what is refused of it."""

from __future__ import annotations

import json
import os
from typing import Any

import optuna
import pytest
import sqlalchemy
import torch

from paifuser_lab import Workload
from paifuser_lab.errors import FileError
from paifuser_lab.machine import hardware
from paifuser_lab.planner import searches, store
from paifuser_lab.planner.screening import Screen
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.planner.store import Study
from paifuser_lab.workload import Inputs
from tests.planner.conftest import BF16, FOLD, LABELS, LAYOUT, row
from tests.support.models import images

ABOUT = {"workload": "small", "goal": "latency"}
KNOWN = ABOUT | {"model": "m", "machine": "x"}


def test_a_search_goes_on_from_its_study_and_measures_nothing_twice(work, tried, url):
    applied: list[str] = []
    real = Screen.screened

    def counting(self: Any, change: Any, *given: Any) -> Any:
        applied.append(change.label)
        return real(self, change, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Screen, "screened", counting)
        options = {"study": url, "metric_drop": 1.0}
        first = tried(work, *LABELS, should_stop=lambda: len(applied) >= 2, **options)[-1]
        assert first.is_interrupted and 1 <= len(first.rows) <= 2
        kept = [row.label for row in first.rows]
        last = tried(work, *LABELS, **options)[-1]
    assert {row.label for row in last.rows} == set(LABELS.values())
    assert all(applied.count(label) == 1 for label in kept)


def test_what_a_killed_process_had_begun_is_measured_and_what_it_measured_is_kept(work, url):
    space = Space.of(work, hardware(), ("eager",))
    study = store.Study.open(url, KNOWN, space.axes)
    for point in (BF16, LAYOUT):
        study.queue(point)
    trial, point = study.ask()
    measured, other = study.ask()
    for each in (trial, measured):
        each.set_user_attr(store.OWNER, [os.uname().nodename, 1, -1.0])  # began before the machine
    measured.set_user_attr(store.VALUES, [0.5, 0.0])
    measured.set_user_attr(store.ROW, json.loads(row("kept").model_dump_json()))
    again = store.Study.open(url, KNOWN, space.axes)
    assert again.finished[other].label == "kept" and point not in again.finished
    assert again.ask()[1] == point


def test_a_process_knows_itself_on_windows_which_has_no_uname(monkeypatch):
    owner = store._owner()
    monkeypatch.delattr(os, "uname")
    assert store._owner() == owner and not store._is_alive(owner)


@pytest.mark.parametrize("change", ["model", "machine", "goal"])
def test_a_study_of_something_else_is_refused(work, change, url):
    store.Study.open(url, KNOWN, {"keep": (1.0, 0.5)})
    other = KNOWN | {change: "another"}
    if change == "goal":  # another study in the same database
        assert store.Study.open(url, other, {"keep": (1.0,)}).finished == {}
        return
    with pytest.raises(FileError, match=f"is of another {change}: {KNOWN[change]}"):
        store.Study.open(url, other, {"keep": (1.0, 0.5)})


def test_a_study_of_other_inputs_another_metric_or_other_test_data_is_refused(work, url):
    def opened(subject: Workload) -> Study:
        return Study.open(url, store.about_of(subject, "latency", url), {"keep": (1.0,)})

    assert opened(work).finished == opened(work).finished == {}
    larger, judged = work.copied(), work.copied()
    larger.inputs = Inputs.of(images(8))
    with pytest.raises(FileError, match="another shape of the inputs: 2×3×8×8 float32, where"):
        opened(larger)
    judged.test = [(images(), torch.zeros(2))]
    with pytest.raises(FileError, match=r"number of test samples: None, where .* has 2;"):
        opened(judged)
    judged.metric = lambda predict, test: 1.0
    with pytest.raises(FileError, match="another metric: None"):
        opened(judged)


def test_a_study_of_other_choices_is_refused(url):
    store.Study.open(url, ABOUT, {"keep": (1.0, 0.5), "threads": (0,)})
    with pytest.raises(FileError, match=r"others than this search \(keep\); give the same"):
        store.Study.open(url, ABOUT, {"keep": (1.0,), "threads": (0,)})
    assert store.Study.open(url, ABOUT, {"keep": (1.0, 0.5), "threads": (0,)}).finished == {}


def test_a_study_of_an_earlier_schema_which_kept_no_choices_is_refused(url):
    axes = {"memory": ("as it is",)}
    store.Study.open(url, ABOUT, axes).study.set_user_attr("about", {**ABOUT, "schema": 1})
    with pytest.raises(FileError, match="has schema 1"):
        store.Study.open(url, ABOUT, axes)


def test_a_database_whose_tables_another_process_creates_meanwhile_is_opened(monkeypatch, url):
    real, attempts = optuna.storages.RDBStorage.__init__, []

    def create(self, url):
        attempts.append(url)
        if len(attempts) < 3:
            raise sqlalchemy.exc.OperationalError("CREATE", {}, Exception("table already exists"))
        real(self, url)

    monkeypatch.setattr(optuna.storages.RDBStorage, "__init__", create)
    opened = Study.open(url, ABOUT, {})
    assert len(attempts) == 3 and not opened.study.trials


def test_a_study_keeps_whether_a_pool_pays_which_each_search_measures_anew(url):
    paid = {"memory": ("as it is", "pool"), "keep": (1.0,)}
    store.Study.open(url, ABOUT, paid)
    again = store.Study.open(url, ABOUT, {"memory": ("as it is",), "keep": (1.0,)})
    assert again.axes == paid


def test_a_full_disk_ends_a_search_that_keeps_what_it_measured(work, tried, monkeypatch, url):
    real, told = optuna.Study.tell, []

    def full(study: Any, trial: Any, *args: Any, **options: Any) -> Any:
        told.append(trial)
        if len(told) > 1:
            raise optuna.exceptions.StorageInternalError("disk is full")
        return real(study, trial, *args, **options)

    monkeypatch.setattr(optuna.Study, "tell", full)
    last = tried(work, *LABELS, study=url, metric_drop=1.0)[-1]
    assert last.is_done and len(last.rows) == 2 and "disk is full" in last.note
    monkeypatch.setattr(optuna.Study, "ask", full)
    with pytest.raises(FileError, match="disk is full"):
        tried(work, *LABELS, study=url.replace("searches", "others"), metric_drop=1.0)
    monkeypatch.undo()
    assert len(tried(work, *LABELS, study=url, metric_drop=1.0)[-1].rows) == len(LABELS)


def test_a_damaged_database_is_named(work, tmp_path):
    path = tmp_path / "searches.db"
    path.write_text("no database")
    with pytest.raises(FileError, match=r"cannot be used .*not a database"):
        searches(work, study=f"sqlite:///{path}")


def test_the_default_study_is_kept_with_the_user_s_data(work, tried, monkeypatch, tmp_path):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    tried(work, FOLD)
    assert (tmp_path / "searches.db").is_file()
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "off"))
    monkeypatch.setenv("PAIFUSER_HISTORY", "0")
    assert tried(work, FOLD)[-1].is_done and not (tmp_path / "off" / "searches.db").exists()


def test_optuna_chooses_by_the_seed_and_alike_with_the_same():
    axes = {"keep": tuple(range(50)), "threads": tuple(range(50))}

    def asked(seed: int) -> list[Point]:
        study = Study.open(None, ABOUT, axes, seed)
        return [study.ask()[1] for _ in range(3)]

    assert asked(0) == asked(0) != asked(1)
