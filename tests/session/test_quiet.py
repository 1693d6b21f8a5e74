"""A session waits for a quiet machine before it measures again, and shows what others take."""

from __future__ import annotations

import threading

import pytest

import paifuser_lab as lab
from paifuser_lab.jobs import measuring, worker
from paifuser_lab.jobs.worker import LoadHistory, wait_until_quiet
from paifuser_lab.machine.host import CoreUse
from paifuser_lab.records.quality import Quality


@pytest.fixture
def shares(monkeypatch):
    """What others take in each second, without waiting for it."""
    taken = []
    monkeypatch.setattr(worker, "SAMPLE_S", 0.001)
    monkeypatch.setattr(worker, "core_use", lambda *_: CoreUse(0.0, 0.0, 0.0, 2))
    monkeypatch.setattr(worker, "others_share", lambda *_: taken.pop(0) if taken else 0.0)
    return taken


def test_five_quiet_seconds_in_a_row_end_the_wait(shares):
    shares += [0.5, 0.0, 0.0, 0.4, 0.02, 0.0, 0.0, 0.0, 0.0, 0.9]
    counted = []
    assert wait_until_quiet(lambda: False, counted.append) is None
    assert counted == [0, 1, 2, 0, 1, 2, 3, 4, 5] and shares == [0.9]


def test_a_machine_that_stays_busy_ends_the_wait_with_what_others_took(shares, monkeypatch):
    monkeypatch.setattr(worker, "PATIENCE", 3)
    shares += [0.5, 0.4, 0.0]
    assert wait_until_quiet(lambda: False, lambda done: None) == 0.5


def test_a_stop_ends_the_wait(shares):
    shares += [0.5] * 9
    assert wait_until_quiet(lambda: len(shares) < 6, lambda done: None) is None
    assert len(shares) == 5


def test_the_history_keeps_a_minute_of_shares(shares):
    shares += [index / 100 for index in range(70)]
    load = LoadHistory()
    for _ in range(70):
        load.sample()
    assert load.shares == tuple(index / 100 for index in range(10, 70))


def test_measuring_again_waits_for_a_quiet_machine_and_keeps_the_figures_meanwhile(
    session, shares, monkeypatch
):
    before = session.state.comparison
    seen = []
    session.observe(lambda state: seen.append((state.status, state.comparison is before)))
    shares += [0.5, 0.5]
    session.measure_again(when_quiet=True)
    state = session.wait(120)
    assert ("waiting", True) in seen and state.error is None
    assert state.comparison is not before and state.status == "idle"
    statuses = [status for status, _ in seen]
    assert statuses.index("waiting") < statuses.index("measuring")


def test_once_quiet_a_profile_of_a_busy_machine_is_taken_again_and_a_quiet_one_kept(
    session, shares, monkeypatch
):
    profiled = session.state.profile
    for quality, is_kept in ((Quality(), True), (Quality(others_share=0.5), False)):
        known = profiled.model_copy(update={"quality": quality, "machine": "marked"})
        session.tried._profiles[session.state.recipe.key] = known
        session.measure_again(when_quiet=True)
        assert (session.wait(120).profile.machine == "marked") is is_kept


def test_once_quiet_the_unchanged_model_that_a_change_is_compared_with_is_profiled_again_too(
    session, shares
):
    session.choose("fold")
    noisy = session.wait(120).baseline.model_copy(update={"quality": Quality(others_share=0.5)})
    session.tried.put_profile(lab.Recipe(), noisy)
    session.measure_again(when_quiet=True)
    state = session.wait(120)
    assert state.baseline.quality.others_share == 0 and state.profile is not state.baseline


def test_a_machine_that_stays_busy_leaves_the_measurement_and_says_so(session, shares, monkeypatch):
    monkeypatch.setattr(worker, "PATIENCE", 2)
    before = session.state.comparison
    shares += [0.5] * 99
    session.measure_again(when_quiet=True)
    state = session.wait(120)
    assert state.comparison is before and "did not become quiet" in state.error
    assert "50%" in state.error


@pytest.fixture
def waiting(session, shares, monkeypatch):
    """The session, which waits for a machine that does not become quiet."""
    monkeypatch.setattr(worker, "PATIENCE", 100_000)
    shares += [0.5] * 100_000
    is_waiting = threading.Event()
    session.observe(lambda state: is_waiting.set() if state.status == "waiting" else None)
    session.measure_again(when_quiet=True)
    assert is_waiting.wait(30)
    return session


def test_stop_ends_waiting_and_keeps_the_measurement(waiting):
    session, before = waiting, waiting.state.comparison
    session.stop()
    state = session.wait(120)
    assert state.comparison is before and state.error is None and state.status == "idle"


def test_a_newer_choice_does_not_wait_for_a_quiet_machine(waiting):
    waiting.choose("fold")
    state = waiting.wait(120)
    assert state.comparison["fold batch-norm"].latency_ms and state.error is None


def test_a_recipe_that_was_never_measured_is_measured_though_the_machine_stays_busy(
    session, shares, monkeypatch
):
    monkeypatch.setattr(worker, "PATIENCE", 2)
    shares += [0.5] * 99
    with session.paused():
        session.choose("fold")
        session.measure_again(when_quiet=True)
    state = session.wait(120)
    assert state.variant is not None and state.comparison["fold batch-norm"].latency_ms


def test_a_stop_before_the_first_round_of_measuring_again_keeps_the_figures(session, monkeypatch):
    before = session.state.comparison
    monkeypatch.setattr(measuring, "compare", lambda *given, **named: session.stop())
    session.measure_again()
    state = session.wait(120)
    assert state.comparison is before and state.results[0].latency_ms
    assert session.state.status == "idle"


def test_what_others_take_is_shown_while_the_worker_is_busy(session, monkeypatch):
    monkeypatch.setattr(worker, "SAMPLE_S", 0.005)
    monkeypatch.setattr(worker, "others_share", lambda *_: 0.25)
    session.measure_again()
    assert session.wait(120).others[-1] == 0.25


def test_the_worker_releases_its_pool_after_each_job_and_the_callers_before_it_starts(
    session, monkeypatch
):
    released = []
    monkeypatch.setattr(worker, "release_pool", lambda: released.append(threading.get_ident()))
    session.measure_again()
    assert released[0] == threading.get_ident()
    session.wait(120)
    assert released[-1] != threading.get_ident()


def test_who_waits_for_the_worker_has_no_pool(session, monkeypatch):
    released = []
    monkeypatch.setattr(worker, "release_pool", lambda: released.append(threading.get_ident()))
    session.wait(120)
    assert released == [threading.get_ident()]


def test_every_measurement_of_a_session_has_the_same_number_of_threads(session, monkeypatch):
    monkeypatch.setattr("paifuser_lab.variant.trial.faster_threads", lambda work: 1)
    counts = set()
    for recipe in (["fold"], ["layout"]):
        session.set_recipe(lab.Recipe(recipe))
        counts |= {row.threads for row in session.wait(120).comparison.rows}
    assert counts == {1}
