"""A session keeps a row of everything that was tried, and goes back to any of it."""

from __future__ import annotations

import pytest

import paifuser_lab as lab
from paifuser_lab.errors import PaifuserError
from paifuser_lab.session.baseline import Baseline
from paifuser_lab.session.history import Tried
from paifuser_lab.steps import Step
from tests.support.bench import TIMEOUT_S


def choose(session, step):
    session.choose(step)
    return session.wait(TIMEOUT_S).results


def test_the_unchanged_model_is_row_0_and_each_recipe_is_a_row(session):
    first = session.state.results
    assert [row.number for row in first.rows] == [0] and first.current == 0
    assert first[0].latency_ms > 0 and first[0].has_profile
    choose(session, "fold")
    results = choose(session, "layout")
    assert [len(row.steps) for row in results.rows] == [0, 1, 2] and results.current == 2
    assert all(row.is_measured and row.has_profile for row in results.rows)
    assert results.short_label(results[2]) == "1 + channels last"
    comparison = session.state.comparison
    assert results[2].verdict == comparison.verdict(comparison[results[2].label])


def test_the_unchanged_model_has_the_figures_of_the_first_comparison_it_was_in(session):
    comparison = session.state.comparison
    baseline = Baseline()
    baseline.add(comparison)
    tried = Tried(lab.Recipe([]), baseline)
    tried.put(lab.Recipe(["fold"]), comparison)
    first = tried.results("small", lab.Recipe(["fold"]))[0]
    assert first.latency_ms == comparison[comparison.baseline].latency_ms and first.speedup == 1


def test_a_recipe_measured_again_keeps_its_row_and_has_the_new_figures(session):
    before = choose(session, "fold")
    session.measure_again()
    after = session.wait(TIMEOUT_S).results
    assert [row.number for row in after.rows] == [0, 1]
    assert after[1].latency_ms == session.state.comparison["fold batch-norm"].latency_ms
    assert after is not before


def edited():
    """The recipe of a step that a cell of a notebook defines, which is run again."""

    class Idle(Step):
        kind = "idle"

    return lab.Recipe([Idle()])


def test_a_step_that_was_edited_in_a_notebook_is_measured_by_itself(session):
    first, second = edited(), edited()
    tried = Tried(lab.Recipe([]), Baseline())
    tried.put(first, session.state.comparison)
    tried.put_profile(first, session.state.profile)
    assert tried.comparison(first) is not None and tried.has_own_profile(first)
    assert tried.comparison(second) is None and not tried.has_own_profile(second)


def test_a_recipe_that_failed_is_a_row_with_the_reason(session):
    results = choose(session, {"precision": {"layers": {"nobody": "bf16"}}})
    assert "'nobody' matches no layer" in results[1].failure and results.current == 0
    assert results.frontier == (0,) and not results[1].is_measured
    assert session.tried.profile(1) is None and session.tried.profile(0) is session.state.baseline


def test_a_metric_that_is_no_share_may_lose_more_than_one():
    before = lab.Measurement(name="baseline", threads=1, metric=20.0)
    after = lab.Measurement(name="fold", steps=("fold",), threads=1, metric=22.5, refused="much")
    compared = lab.Comparison(
        workload="net", machine="m", baseline="baseline", metric_name="perplexity",
        smaller_is_better=True, rounds=1, rows=(before, after),
    )  # fmt: skip
    tried = Tried(lab.Recipe([]), Baseline())
    tried.put(lab.Recipe(["fold"]), compared)
    assert tried.allowed(1).limit.metric_drop == 2.5


def test_there_is_no_recipe_of_a_result_that_is_not_there(session):
    for number in (-1, 7):
        with pytest.raises(PaifuserError, match=f"no result {number}; the results are 0 to 0"):
            session.tried.recipe(number)


def test_the_record_is_the_same_object_until_something_changes(session):
    results = session.state.results
    session.set_error("nothing new")
    assert session.state.results is results
