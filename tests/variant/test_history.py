"""The lab remembers what was measured, in any session, and forgets where that is asked."""

import sqlite3

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import FileError, MeasureError
from paifuser_lab.planner.ranking import WIDE_OPEN
from paifuser_lab.planner.store import Study, default_url
from paifuser_lab.variant import history as remembering

INPUTS = torch.ones(2, 4)
FOLD = lab.Recipe([{"backend": {"name": "eager", "threads": 1}}])


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "searches.db"


def workload(name="net", width=8):
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3)).eval()
    return lab.Workload(model, INPUTS, name=name)


def measured(work, recipe=FOLD, **options):
    return lab.compare(work, recipe, rounds=2, seconds=5, **options)


def test_a_measured_variant_is_a_row_with_its_recipe_machine_and_versions():
    work = workload()
    compared = measured(work)
    past = lab.history(work)
    (row,) = past.rows
    assert row.recipe == FOLD and row.recipe.workload == "net"
    assert row.latency_ms == compared[FOLD.label].latency_ms and row.speedup is not None
    assert row.before_ms == compared["baseline"].latency_ms
    assert row.machine == compared.machine and row.versions["torch"] == torch.__version__
    assert row.weights == compared["baseline"].weights_hash and row.rounds == 2
    assert list(past.frame.index) == [1] and "1 measured of net" in str(past)
    told = past.frame.loc[1]
    assert (told["workload"], told["machine"], told["when"]) == ("net", row.machine, row.when)
    assert told["verdict"] == row.verdict.word and not len(lab.history("resnet").frame)
    assert row.label in past._repr_html_()


def test_rows_of_a_later_training_are_found_and_those_of_another_structure_are_not():
    work, retrained, other = workload(), workload(), workload(width=9)
    for one in (work, retrained, other):
        measured(one)
    assert [row.number for row in lab.history(work).rows] == [1, 2]
    assert lab.history(work)[1].weights != lab.history(work)[2].weights
    assert len(lab.history().rows) == 3 and len(lab.history("net").rows) == 3
    assert not lab.history("resnet").rows
    assert "nothing has been measured" in str(lab.history("resnet"))
    assert "nothing has been measured" in lab.history("resnet")._repr_html_()


def test_rows_are_narrowed_down_by_model_machine_day_and_session():
    measured(workload())
    past = lab.history()
    machine = past[1].machine
    assert past.where(model="NE", machine=machine[:6], session=remembering.SESSION).rows
    day = past[1].when[:10]
    assert past.where(since=day).rows and past.where(since=day.replace("-", "")).rows
    assert not past.where(since="2999-01-01").rows
    assert not past.where(model="other").rows and not past.where(machine="other").rows
    assert not past.where(session="other").rows


def test_two_rows_of_a_model_are_compared_and_those_of_two_models_are_not():
    work, other = workload(), workload()
    measured(work), measured(work, lab.Recipe(["fold"])), measured(other)
    past = lab.history()
    assert past.pair(1, 2).speedup is not None and "Only A has" in past.pair(1, 2).difference
    pair = past.pair(2, 3)
    assert pair.speedup is None and pair.difference.startswith("B is of another model")
    with pytest.raises(MeasureError, match="There is no result 9"):
        past.pair(1, 9)


def test_rows_of_another_batch_are_told_apart_and_not_compared():
    work = workload()
    measured(work), measured(lab.Workload(work.model, torch.ones(8, 4), name="net"))
    past = lab.history(work)
    assert [line["inputs"] for line in past.table()] == ["2×4 float32", "8×4 float32"]
    pair = past.pair(1, 2)
    assert pair.speedup is None and pair.difference.startswith("B is of other inputs, so")
    rows = (past[1], past[2].model_copy(update={"inputs": past[1].inputs}))
    assert "inputs" not in past.model_copy(update={"rows": rows}).table()[0]


def test_the_table_says_whether_a_variant_was_faster():
    measured(workload())
    past = lab.history()
    figures = {"before_ms": 8.0, "latency_ms": 4.0, "speedup": 2.0, "speedup_interval": (1.9, 2.1)}
    row = past[1].model_copy(update={**figures, "quality": None})
    (line,) = past.model_copy(update={"rows": (row,)}).table()
    assert "faster" in line["verdict"] and "→" not in line["verdict"]


def test_the_limit_of_a_trial_is_not_that_of_the_recipe_that_is_reopened():
    work = workload()
    measured(work, lab.Recipe(FOLD.steps, limit=WIDE_OPEN))
    measured(work, lab.Recipe(FOLD.steps, limit={"output_error": 0.3}))
    past = lab.history(work)
    assert past[1].recipe.limit == lab.Recipe().limit
    assert past[2].recipe.limit.output_error == 0.3


def test_neither_a_weight_nor_a_datum_is_kept(database):
    work = workload()
    measured(work)
    kept = database.read_bytes()
    for tensor in (*work.model.parameters(), INPUTS):
        assert tensor.detach().numpy().tobytes()[:16] not in kept
        assert f"{tensor.detach().flatten()[0].item():.6f}".encode() not in kept


def test_one_switch_keeps_nothing(database, monkeypatch):
    monkeypatch.setenv("PAIFUSER_HISTORY", "0")
    measured(workload())
    assert not lab.history().rows and not database.exists()


def test_a_damaged_or_locked_database_costs_no_measurement_and_says_so(database, monkeypatch):
    database.parent.mkdir(parents=True)
    database.write_bytes(b"no database" * 100)
    with pytest.warns(UserWarning, match=r"not remembered: .*searches\.db cannot be used"):
        assert measured(workload())[FOLD.label].latency_ms
    with pytest.raises(FileError, match=r"searches\.db cannot be used \(file is not a database\)"):
        lab.history()
    database.unlink()
    measured(workload())
    monkeypatch.setattr(remembering, "PATIENCE_S", 0.01)
    with sqlite3.connect(database) as locking:
        locking.execute("BEGIN EXCLUSIVE")
        with pytest.warns(UserWarning, match="database is locked"):
            measured(workload())
    assert len(lab.history().rows) == 1


def test_a_folder_that_cannot_be_made_costs_no_measurement_and_says_so(database):
    database.parent.write_text("a file where the folder would be")
    work = workload()
    with pytest.warns(UserWarning, match=r"not remembered: .* cannot be made .*PAIFUSER_HISTORY=0"):
        assert measured(work)[FOLD.label].latency_ms
    with pytest.warns(UserWarning, match=r"A metric is not remembered: .* cannot be made"):
        remembering.add_metric(work, FOLD, 0.25)
    with pytest.raises(FileError, match=r"cannot be made .*PAIFUSER_HISTORY=0"):
        default_url()


def test_a_row_of_another_version_is_named(database):
    measured(workload())
    with sqlite3.connect(database) as changing:
        changing.execute("UPDATE measured SET data = '{}'")
    with pytest.raises(FileError, match="holds a row of another version"):
        lab.history()


def test_history_and_studies_share_a_database():
    work = workload()
    measured(work)
    about = {"workload": "net", "goal": "latency"}
    study = Study.open(default_url(), about, {"engine": ("as it is",)})
    measured(work)
    assert len(lab.history(work).rows) == 2 and not study.finished


def test_the_newest_rows_are_kept_and_older_ones_forgotten(monkeypatch):
    monkeypatch.setattr(remembering, "MOST_ROWS", 2)
    for _ in range(3):
        measured(workload())
    assert [row.number for row in lab.history().rows] == [2, 3]


def test_a_metric_that_was_evaluated_later_is_added_to_the_newest_row_of_its_recipe():
    work = workload()
    work.metric = lambda predict, test: 0.0
    for _ in range(2):
        measured(work, metric=False)
    remembering.add_metric(work, FOLD, 0.25)
    remembering.add_metric(work, lab.Recipe(["fold"]), 0.5)
    first, second = lab.history(work).rows
    assert (first.metric, second.metric, second.metric_name) == (None, 0.25, "<lambda>")


def test_a_row_that_failed_or_was_not_timed_is_not_kept():
    work = workload()
    lab.compare(work, lab.Recipe([{"precision": {"layers": {"9": "int8"}}}]), rounds=1)
    lab.compare(work, rounds=1)
    assert not lab.history().rows
