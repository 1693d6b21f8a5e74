"""The queries about memory end when they are stopped, and answer for the recipe that is chosen."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError, PaifuserError, StoppedError
from paifuser_lab.jobs import QUERIES, QueryContext, memory_queries
from paifuser_lab.jobs.memory_queries import pool_key, stoppable, with_reuse
from paifuser_lab.machine import threads
from paifuser_lab.steps.fold import Fold
from paifuser_lab.variant import Variant, apply_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def workload():
    model = nn.Sequential(nn.Linear(8, 500), nn.ReLU(), nn.Linear(500, 4))
    return lab.Workload(model.eval(), torch.randn(50, 8), name="net")


def context(steps=(), should_stop=lambda: False, **options):
    known = {"recipe": lab.Recipe(list(steps), workload="net")}
    return QueryContext(workload(), 1.0, should_stop, known, options)


def run_ten_times(ran):
    """A run whose errors are caught, as a prediction catches those of a model."""
    layer = nn.Identity()
    for _ in range(10):
        try:
            layer(torch.ones(2))
            ran.append("ran")
        except Exception:
            ran.append("caught")


def test_a_stop_ends_a_run_before_its_next_layer_through_all_that_catches_errors():
    ran = []
    with pytest.raises(StoppedError), stoppable(lambda: len(ran) >= 2):
        run_ten_times(ran)
    assert ran == ["ran", "ran"]


def test_a_run_that_is_not_stopped_is_not_changed():
    with stoppable(lambda: False):
        assert torch.equal(nn.Identity()(torch.ones(2)), torch.ones(2))


def test_a_stop_is_for_the_thread_that_asked_and_for_its_block_alone():
    ran, asked = [], []

    def should_stop():
        asked.append(1)
        return len(asked) > 1

    def run_in_both_threads():
        other = threading.Thread(target=run_ten_times, args=(ran,))
        other.start()
        other.join()
        run_ten_times(ran)

    with pytest.raises(StoppedError), stoppable(should_stop):
        run_in_both_threads()
    assert ran == ["ran"] * 10 and len(asked) == 2
    run_ten_times(ran)
    assert ran == ["ran"] * 20


def test_what_is_stopped_before_it_begins_runs_nothing():
    with pytest.raises(StoppedError), stoppable(lambda: True):
        pytest.fail("it began")


@pytest.mark.parametrize("name", ["memory_fit", "memory_plan", "memory_pool"])
def test_every_query_about_memory_can_be_stopped_on_its_way(name, monkeypatch):
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) > 4

    query = QUERIES[name]
    with pytest.raises(StoppedError):
        list(query.find(context(should_stop=should_stop, train=True, limit=None)))
    assert len(asked) == 5, "it goes no further"


def test_a_pool_is_left_out_where_only_buffers_count_and_other_steps_stay():
    assert isinstance(context(["pool"]).subject(without=("pool",)), lab.Workload)
    subject = context(["pool", "reuse"]).subject(without=("pool",))
    assert isinstance(subject, Variant) and [step.kind for step in subject.recipe] == ["reuse"]
    keys = [pool_key(lab.Recipe(list(steps))) for steps in ([], ["pool"], ["reuse"])]
    assert keys[0] == keys[1] != keys[2]


def test_answers_for_other_recipes_and_for_training_are_kept():
    first = context(train=False, limit="1 GB")
    (answer,) = QUERIES["memory_fit"].find(first)
    ((digest, train),) = answer["memory_fit"]
    assert digest == first.known["recipe"].digest and train is False
    more = context(train=True, limit="1 GB")
    more.known["memory_fit"] = answer["memory_fit"]
    (both,) = QUERIES["memory_fit"].find(more)
    assert set(both["memory_fit"]) == {(digest, False), (digest, True)}
    assert both["memory_fit"][digest, False] is answer["memory_fit"][digest, False]


def test_what_an_engine_holds_is_not_predicted_which_is_said_at_once():
    engine = context([{"backend": {"name": "onnxruntime"}}], train=False, limit=None)
    with pytest.raises(MeasureError, match="onnxruntime takes its memory itself"):
        list(QUERIES["memory_fit"].find(engine))
    eager = context([{"backend": {"name": "eager"}}], train=False, limit="1 GB")
    assert list(QUERIES["memory_fit"].find(eager))


def test_memory_that_can_be_used_again_is_a_remedy_of_a_call_once():
    asked = context(train=False, limit="1 GB")
    (answer,) = QUERIES["memory_fit"].find(asked)
    (fit,) = answer["memory_fit"].values()
    (remedy,) = [row for row in fit.remedies if row.change == "memory reused"]
    assert remedy.peak_bytes == fit.predicted.peak_bytes - 50 * 500 * 4 + 50 * 4 * 4
    assert remedy.largest_batch > fit.largest_batch, "a larger batch fits, too"
    again = context(["reuse"])
    assert with_reuse(fit, again) is fit, "the recipe has it already"


def test_a_recipe_is_applied_once_for_whether_it_fits_and_for_memory_used_again(monkeypatch):
    apply, applied = Fold.apply, []
    monkeypatch.setattr(apply_recipe, "faster_threads", lambda work: 1)
    monkeypatch.setattr(
        Fold, "apply", lambda step, draft: (applied.append(step.kind), apply(step, draft))
    )
    with threads(2):  # a session has others than the workload is timed with
        (answer,) = QUERIES["memory_fit"].find(context(["fold"], train=False, limit="1 GB"))
    (fit,) = answer["memory_fit"].values()
    assert "memory reused" in [row.change for row in fit.remedies]
    assert applied == ["fold"]


def test_a_model_that_cannot_use_memory_again_is_not_offered_it(monkeypatch):
    def refuse(*args, **options):
        raise PaifuserError("it cannot be traced")

    fit = lab.fits(workload(), limit="1 GB")
    monkeypatch.setattr(memory_queries, "apply_as_timed", refuse)
    assert with_reuse(fit, context()) is fit
    monkeypatch.undo()
    plain = context()
    plain.work.model[1] = nn.Identity()
    fit = lab.fits(plain.work, limit="1 GB")
    assert with_reuse(fit, plain) is fit, "it would save nothing"
