"""ONNX Runtime's session options in the Export tab: timed in turn, and used with a click."""

from __future__ import annotations

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.jobs import queries
from paifuser_lab.records import Measurement
from paifuser_lab.variant.comparison import CHANGES
from tests.support.bench import opened, send
from tests.support.drawn import comparison_of
from tests.support.models import Small


def compared(work, recipe, *, seconds, should_stop):
    """What timing the options gives, without timing them."""
    names = ["baseline · 1 thread", *CHANGES, "one thread"]
    rows = [
        Measurement(
            name=name,
            threads=2 if name in CHANGES else 1,
            latency_ms=8.0 / (at + 1),
            speedup=at + 1.0,
            speedup_interval=(at + 0.9, at + 1.1),
        )
        for at, name in enumerate(names)
    ]
    rows[-1] = rows[-1].model_copy(update={"failure": f"after {len(recipe)} steps"})
    return comparison_of(*rows, workload=work.name)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    torch.manual_seed(0)
    work = lab.Workload(Small().eval(), torch.rand(1, 3, 8, 8), name="net")
    with opened(work, tmp_path_factory.mktemp("bench")) as bench, pytest.MonkeyPatch.context() as m:
        m.setattr(queries, "compare_settings", compared)
        yield bench


def rows_of(bench):
    return {row["name"]: row for row in bench.views["engine_settings"]["rows"]}


def test_the_options_are_timed_and_one_is_put_into_the_recipe_in_place_of_its_engine(bench):
    assert "engine_settings" not in bench.views
    assert "time it first" in send(bench, do="use_engine_settings", name="no arena").error
    statuses = []
    stop = bench.session.observe(lambda state: statuses.append(state.status))
    assert send(bench, do="engine_settings").error is None and "tuning" in statuses
    stop()
    rows = rows_of(bench)
    assert list(rows) == ["baseline · 1 thread", *CHANGES, "one thread"]
    assert rows["no arena"]["word"] == "faster" and not rows["no arena"]["is_used"]
    assert not rows["baseline · 1 thread"]["is_option"]
    assert send(bench, do="use_engine_settings", name="no arena").error is None
    (step,) = bench.recipe
    assert (step.name, step.threads, step.arena, step.parallel) == ("onnxruntime", 2, False, False)
    assert [name for name, row in rows_of(bench).items() if row["is_used"]] == ["no arena"]
    send(bench, do="use_engine_settings", name="parallel branches")
    (step,) = bench.recipe
    assert (step.arena, step.parallel) == (True, True)
    assert "not timed" in send(bench, do="use_engine_settings", name="baseline · 1 thread").error


def test_another_recipe_has_options_of_its_own(bench):
    send(bench, do="choose", step={"fold": {}})
    assert "engine_settings" not in bench.views
    send(bench, do="engine_settings")
    assert rows_of(bench)["one thread"]["failure"] == "after 2 steps"
