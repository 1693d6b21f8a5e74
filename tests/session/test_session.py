"""A session applies and measures recipes in the background, undoes them bit for bit, and leaves no
partial state.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.errors import StoppedError
from paifuser_lab.jobs import measuring
from paifuser_lab.jobs.queries import QUERIES, QueryContext
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.profiler import memory_timeline
from paifuser_lab.records import Limit
from paifuser_lab.session import Session
from tests.support.bench import TIMEOUT_S
from tests.support.models import Small, images


@pytest.fixture
def sessions():
    """A factory of sessions that measure briefly; closes them at the end."""
    sessions = []

    def make(model=None, **options):
        work = lab.Workload(model or Small(), images(), name="small")
        sessions.append(Session(work, **{"rounds": 1, "seconds": 0.1} | options))
        sessions[-1].wait(TIMEOUT_S)
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()
        session.wait(TIMEOUT_S)


def test_the_unchanged_model_is_profiled_and_measured_first(sessions):
    state = sessions().state
    assert not state.is_busy and state.error is None and not state.can_undo
    assert "conv" in state.profile and state.baseline is state.profile
    assert (
        len(state.comparison.rows) == len({row.name for row in state.comparison.rows})
        and len(state.recipe) == 0
    )


def test_a_choice_is_applied_measured_and_profiled(sessions):
    session = sessions()
    session.choose("fold")
    state = session.wait(TIMEOUT_S)
    assert state.variant.recipe == state.recipe == lab.Recipe(["fold"])
    assert state.comparison["fold batch-norm"].latency_ms > 0
    assert state.profile["norm"].kind == "Identity" and state.baseline["norm"].kind == "BatchNorm2d"
    assert state.can_undo and not state.can_redo


def test_undo_and_redo_are_instant_and_undoing_everything_restores_the_weights(sessions):
    model = Small()
    before, output = weights_hash(model), model(images())
    hooks = [
        (len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()
    ]
    session = sessions(model)
    for step in ("fold", {"precision": {"layers": {"head": "bf16"}}}, "layout"):
        session.choose(step)
        session.wait(TIMEOUT_S)
    measured = session.state.comparison
    for _ in range(3):
        assert session.undo()
    assert session.state.comparison is not None, "what was measured once is shown without waiting"
    assert not session.undo()
    undone = session.wait(TIMEOUT_S)
    assert len(undone.recipe) == 0 and undone.can_redo
    assert weights_hash(undone.variant.module) == before == weights_hash(model)
    torch.manual_seed(0)
    assert model(images()).shape == output.shape
    assert [
        (len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()
    ] == hooks
    x = images()
    with torch.no_grad():
        assert torch.equal(undone.variant.model(x), model(x))
    for _ in range(3):
        assert session.redo()
    assert session.state.comparison is measured and not session.redo()


def test_a_step_that_cannot_be_applied_leaves_the_recipe_unchanged_and_sets_an_error(sessions):
    session = sessions()
    session.choose("fold")
    session.wait(TIMEOUT_S)
    session.choose({"precision": {"layers": {"nobody": "bf16"}}})
    state = session.wait(TIMEOUT_S)
    assert state.recipe == lab.Recipe(["fold"]) and "'nobody' matches no layer" in state.error
    assert state.comparison is not None and state.variant.recipe == state.recipe
    session.choose("layout")
    assert session.wait(TIMEOUT_S).error is None, "the next choice is not affected"


def test_steps_chosen_before_a_failing_step_are_kept(sessions, monkeypatch):
    session = sessions()
    begun, go_on = threading.Event(), threading.Event()
    real = measuring.compare

    def slow(*arguments, **options):
        begun.set()
        go_on.wait(TIMEOUT_S)
        return real(*arguments, **options)

    monkeypatch.setattr(measuring, "compare", slow)
    session.choose("fold")
    assert begun.wait(TIMEOUT_S)
    session.choose("layout")
    session.choose({"precision": {"layers": {"nobody": "bf16"}}})
    go_on.set()
    state = session.wait(TIMEOUT_S)
    assert state.recipe == lab.Recipe(["fold", "layout"]) and "nobody" in state.error


def test_a_newer_choice_ends_an_older_measurement(sessions):
    session = sessions()
    measuring = threading.Event()
    session.rounds, session.seconds = 10**6, 1e6  # it would never end
    session.observe(
        lambda state: measuring.set() if state.status == "measuring" and state.done else None
    )
    session.choose("fold")
    assert measuring.wait(TIMEOUT_S)
    session.rounds, session.seconds = 1, 0.1
    session.choose("layout")
    state = session.wait(TIMEOUT_S)
    assert state.recipe == lab.Recipe(["fold", "layout"]) and state.comparison is not None
    assert session.tried.comparison(lab.Recipe(["fold"])) is None, (
        "an unfinished measurement is not cached"
    )


def test_a_measurement_can_be_stopped_and_repeated(sessions, monkeypatch):
    session = sessions()
    reached = threading.Event()
    session.rounds, session.seconds = 10**6, 1e6
    stop = session.observe(
        lambda state: reached.set() if state.status == "measuring" and state.done > 1 else None
    )
    session.choose("fold")
    assert reached.wait(TIMEOUT_S)
    session.stop()
    state = session.wait(TIMEOUT_S)
    assert state.comparison.is_interrupted and state.comparison["fold batch-norm"].latency_ms > 0
    stop()
    session.rounds, session.seconds = 1, 0.1
    session.measure_again()
    whole = session.wait(TIMEOUT_S).comparison
    assert not whole.is_interrupted
    reached.clear()
    session.rounds, session.seconds = 10**6, 1e6
    stop = session.observe(
        lambda state: reached.set() if state.status == "measuring" and state.done > 1 else None
    )
    session.measure_again()
    assert reached.wait(TIMEOUT_S)
    session.stop()
    assert session.wait(TIMEOUT_S).comparison is whole
    stop()


def test_stopping_one_query_leaves_the_running_job_and_what_else_waits(sessions, monkeypatch):
    session, running, ended = sessions(), threading.Event(), []

    def search(context):
        running.set()
        while not context.should_stop():
            time.sleep(0.01)
        ended.append("faster")
        yield {"candidates": "until then"}

    def finder(name):
        return lambda context: iter([ended.append(name) or {}])

    for name, find in (("faster", search), ("memory", finder("memory")), ("fusion", finder("f"))):
        monkeypatch.setitem(QUERIES, name, replace(QUERIES[name], find=find))
    session.query("faster")
    assert running.wait(TIMEOUT_S)
    session.query("memory")
    session.query("fusion")
    session.stop("memory")
    session.stop("allocation")
    assert (session.state.status, session.state.queued) == ("searching", ("fusion",))
    time.sleep(0.05)
    assert not ended, "the search goes on"
    session.stop("faster")
    state = session.wait(TIMEOUT_S)
    assert ended == ["faster", "f"] and state.record("candidates") == "until then"
    with pytest.raises(lab.PaifuserError, match="no query 'dance'; it has sensitivity"):
        session.stop("dance")


def test_a_failing_listener_is_logged_and_the_session_continues(sessions, caplog):
    session = sessions()
    seen = []

    def broken(state):
        raise ValueError("no")

    session.observe(broken)
    session.observe(lambda state: seen.append(state.status))
    session.choose("fold")
    assert session.wait(TIMEOUT_S).variant is not None
    assert {"applying", "measuring", "idle"} <= set(
        seen
    ) and "a listener of the session failed" in caplog.text


def test_a_cell_can_apply_and_measure_the_same_model_during_the_session_s_work(sessions):
    session = sessions()
    session.choose("fold")
    session.choose("layout")
    comparison = lab.compare(
        session.work,
        lab.Recipe(["fold", {"backend": {"name": "onnxruntime", "threads": 1}}]),
        rounds=1,
    )
    seen = lab.profile(session.work, runs=1)
    state = session.wait(TIMEOUT_S)
    assert all(row.failure is None for row in comparison.rows) and seen.latency_ms > 0
    assert state.error is None and state.variant.recipe == lab.Recipe(["fold", "layout"])


def test_the_model_can_be_trained_in_a_cell_while_the_session_runs_its_copy(sessions):
    model = Small().train()
    session = sessions(model)
    modes = set()
    model.register_forward_hook(lambda module, args, output: modes.add(module.training))
    session.choose("fold")
    assert all(module.training for module in model.modules()), (
        "the worker does not put the model in eval mode"
    )
    state = session.wait(TIMEOUT_S)
    assert not modes, "the worker never calls it"
    assert lab.compare(session.work, state.variant, rounds=1)["fold batch-norm"].failure is None


STRICT = lab.Recipe(["fold", {"precision": {"default": "bf16"}}], limit=Limit(output_error=1e-9))


def test_what_is_refused_is_withdrawn_and_stays_in_the_results(sessions):
    session = sessions()
    session.choose("fold")
    session.wait(TIMEOUT_S)
    session.set_recipe(STRICT)
    for _ in range(2):  # measured, then known
        state = session.wait(TIMEOUT_S)
        assert state.recipe == state.variant.recipe == lab.Recipe(["fold"])
        assert not state.comparison.rows[-1].refused and not state.can_redo
        assert state.results[2].refused and state.results.current == 1 == len(state.recipe)
        assert (state.refused.number, state.refused.can_allow) == (2, True)
        assert "1e-09 is allowed" in state.refused.sentence
        assert state.refused.sentence.endswith("withdrawn, and fold batch-norm is here again.")
        session.set_recipe(STRICT)
    session.wait(TIMEOUT_S)
    session.undo()
    assert session.wait(TIMEOUT_S).refused is None and len(session.recipe) == 0


def test_what_is_refused_is_chosen_when_it_is_allowed_by_its_number(sessions):
    session = sessions()
    session.set_recipe(STRICT)
    row = session.wait(TIMEOUT_S).results[1]
    with pytest.raises(lab.PaifuserError, match="no result 7"):
        session.allow(7)
    session.allow(1)
    state = session.wait(TIMEOUT_S)
    assert state.refused is None and state.recipe == STRICT == state.variant.recipe
    assert row.relative_error <= state.recipe.limit.output_error <= row.relative_error + 1e-3
    assert len(state.results.rows) == 2 and not state.results[1].refused


def test_what_could_not_be_measured_is_withdrawn_and_cannot_be_allowed(sessions, monkeypatch):
    session = sessions()
    real = measuring.compare

    def failing(work, *variants, **options):
        compared = real(work, *variants, **options)
        rows = [
            row.model_copy(update={"failure": "RuntimeError: no"}) if row.steps else row
            for row in compared.rows
        ]
        return compared.model_copy(update={"rows": tuple(rows)})

    monkeypatch.setattr(measuring, "compare", failing)
    session.choose("fold")
    state = session.wait(TIMEOUT_S)
    assert "could not be measured: RuntimeError: no" in state.refused.sentence
    assert len(state.recipe) == 0 and not state.refused.can_allow
    with pytest.raises(lab.PaifuserError, match="cannot be allowed"):
        session.allow(1)


def test_the_same_steps_within_another_limit_are_measured_again(sessions):
    session = sessions()
    session.set_recipe(STRICT)
    assert session.wait(TIMEOUT_S).results[1].refused
    session.set_recipe(lab.Recipe(STRICT.steps, limit=Limit(output_error=1.0)))
    state = session.wait(TIMEOUT_S)
    assert not state.comparison.rows[-1].refused and not state.results[1].refused
    assert len(state.results.rows) == 2


def test_what_is_allowed_while_its_refusal_is_measured_is_not_withdrawn(sessions, monkeypatch):
    session = sessions()
    session.wait(TIMEOUT_S)
    real, wide = measuring.compare, lab.Recipe(STRICT.steps, limit=Limit(output_error=1.0))

    def allowed_meanwhile(work, *variants, **options):
        compared = real(work, *variants, **options)
        session.set_recipe(wide)
        return compared

    monkeypatch.setattr(measuring, "compare", allowed_meanwhile)
    session.set_recipe(STRICT)
    state = session.wait(TIMEOUT_S)
    assert state.recipe == wide and state.recipe.limit == wide.limit and state.refused is None


def test_what_a_stopped_measurement_timed_of_the_unchanged_model_is_rough(sessions):
    session = sessions()
    known = session.wait(TIMEOUT_S).comparison
    ms = session.baseline.ms
    stopped = known.with_baseline(ms / 2).model_copy(update={"is_interrupted": True})
    session._keep(session.recipe, stopped)
    assert session.baseline.ms == ms


def test_the_reason_of_a_failed_step_stays_while_a_query_runs(sessions):
    session = sessions()
    with session.paused():
        session.choose({"precision": {"layers": {"nobody": "bf16"}}})
        session.query("coupling")
    state = session.wait(TIMEOUT_S)
    assert state.coupling is not None and "nobody" in state.error
    session.query("coupling")
    assert session.state.error is None
    session.wait(TIMEOUT_S)


def test_coupling_ends_when_it_is_stopped():
    work = lab.Workload(Small(), images(), name="small")
    known = dict.fromkeys(("coupling", "cut_cost", "baseline"))
    with pytest.raises(StoppedError):
        list(QUERIES["coupling"].find(QueryContext(work, 0.1, lambda: True, known)))


def test_memory_is_that_of_the_recipe_though_its_model_was_evicted(sessions):
    session = sessions()
    session.choose({"precision": {"default": "bf16"}})
    recipe = session.wait(TIMEOUT_S).recipe
    session._own.variants.clear()
    session.query("memory")
    timeline = session.wait(TIMEOUT_S).record("memory")[recipe.digest]
    bare = memory_timeline(session.work)
    assert timeline.total_weights_bytes < bare.total_weights_bytes


def test_the_unchanged_model_is_profiled_though_a_recipe_was_chosen_at_once():
    session = Session(lab.Workload(Small(), images(), name="small"), rounds=1, seconds=0.1)
    session.choose("fold")
    state = session.wait(TIMEOUT_S)
    session.close()
    assert state.baseline["norm"].kind == "BatchNorm2d" and state.profile["norm"].kind == "Identity"
    assert state.results[0].has_profile


def test_the_first_figure_is_that_of_the_first_round():
    seen = []
    session = Session(lab.Workload(Small(), images(), name="small"), rounds=5, seconds=0.5)
    session.observe(lambda state: seen.append(state.comparison and state.comparison.rounds))
    session.wait(TIMEOUT_S)
    session.close()
    assert next(rounds for rounds in seen if rounds) == 1
