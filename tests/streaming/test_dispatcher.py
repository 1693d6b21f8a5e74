"""The dispatcher over simulated workers: exactly once, in order, bounded, and near the ideal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.streaming.dispatcher import Dispatcher, Flight, Node
from tests.support.simulated_workers import Fault, simulate

FAULTS = st.builds(
    Fault,
    at=st.floats(0, 60),
    kind=st.sampled_from(["die", "slow", "leave", "join", "twice"]),
    worker=st.integers(0, 5),
    factor=st.floats(0.2, 30),
)


@settings(max_examples=150, deadline=None)
@given(
    speeds=st.lists(st.floats(0.1, 20), min_size=6, max_size=8),
    groups=st.integers(0, 80),
    faults=st.lists(FAULTS, max_size=12),
    limit=st.integers(1, 3),
    window=st.none() | st.integers(1, 40),
    hedge=st.none() | st.floats(1.1, 5),
    weights=st.lists(st.floats(0.5, 4), min_size=1, max_size=5),
    start=st.integers(0, 5),
)
def test_each_group_is_released_once_and_in_order_whatever_the_workers_do(
    speeds, groups, faults, limit, window, hedge, weights, start
):
    dispatcher = Dispatcher(start=start, limit=limit, window=window, hedge=hedge, timeout_s=2000)
    run = simulate(dispatcher, speeds, start + groups, faults, weights=weights)
    assert run.released == list(range(start, start + groups))
    assert run.most_in_flight <= limit
    assert run.most_unconsumed <= (window or 4 * (len(speeds) + len(faults)))
    left = ("_queue", "_again", "_weights", "_holders", "_answered")
    assert not any(getattr(dispatcher, name) for name in left)


def efficiency(speeds, groups=600, faults=(), **options):
    run = simulate(Dispatcher(**options), speeds, groups, faults)
    return groups / run.ended_at / sum(1 / speed for speed in speeds), run


def test_equal_workers_are_kept_busy_and_nothing_is_sent_twice():
    share, run = efficiency([1.0] * 16)
    assert share > 0.97
    assert run.sends["hedge"] + run.sends["probe"] <= 16  # at the end, where workers have no work


def test_a_mixed_fleet_reaches_nine_tenths_of_what_its_speeds_allow():
    share, run = efficiency([1, 1, 1, 1, 1.5, 1.5, 3, 3])
    assert share > 0.9
    assert run.share["w0"] > 1.4 * run.share["w4"] > 1.4 * run.share["w6"]


def test_one_worker_twenty_times_slower_than_the_others_does_not_hold_up_the_order():
    share, _ = efficiency([1] * 7 + [20])
    assert share > 0.9


def test_a_worker_that_would_hold_up_the_order_is_given_no_work_without_hedging_either():
    _, run = efficiency([1] * 7 + [20], hedge=None)
    assert run.share["w7"] <= 2  # its first, by which it is known, and a probe


def test_the_group_that_all_wait_for_is_sent_to_a_second_worker_when_its_own_stops():
    stops = Fault(20, "slow", 0, 100.0)
    hedged = simulate(Dispatcher(), [1.0] * 4, 200, [stops])
    patient = simulate(Dispatcher(hedge=None), [1.0] * 4, 200, [stops])
    assert hedged.ended_at < 80 and hedged.sends["hedge"] < 10
    assert patient.ended_at > 120


def test_a_worker_that_becomes_slow_is_given_less_and_more_again_once_it_recovers():
    slow = Fault(20, "slow", 0, 20.0)
    recovers = Fault(120, "slow", 0, 1 / 20.0)
    early = simulate(Dispatcher(), [1.0] * 4, 400, [slow])
    later = simulate(Dispatcher(), [1.0] * 4, 1000, [slow, recovers])
    assert early.share["w0"] < 40  # 20 before, few after
    assert later.share["w0"] > 150


def test_what_a_dead_worker_held_is_sent_first_and_again():
    dispatcher = Dispatcher(window=8)
    for name in "ab":
        dispatcher.join(name)
    for group in range(4):
        dispatcher.accept(group)
    sent = {send.group: send.node for send in dispatcher.assign(0.0)}
    assert sent == {0: "a", 1: "b"}  # one each until their speed is known
    dispatcher.lose("a")
    dispatcher.answer("b", 1, 1.0)
    again = dispatcher.assign(1.0)
    assert [(send.group, send.why) for send in again] == [(0, "again"), (2, "first")]


def test_the_answer_of_a_worker_that_was_given_up_still_counts():
    dispatcher = Dispatcher()
    dispatcher.join("a")
    dispatcher.accept(0)
    dispatcher.assign(0.0)
    dispatcher.lose("a")
    assert dispatcher.answer("a", 0, 9.0)
    dispatcher.join("b")
    assert dispatcher.assign(9.0) == []
    assert dispatcher.release() == [0]


def test_a_group_is_overdue_by_the_time_since_its_worker_could_begin():
    dispatcher = Dispatcher(timeout_s=10.0)
    dispatcher.join("a")
    dispatcher.accept(0)
    dispatcher.assign(0.0)
    dispatcher.answer("a", 0, 1.0)
    dispatcher.accept(1)
    dispatcher.accept(2)
    dispatcher.assign(1.0)
    dispatcher.answer("a", 1, 9.0)
    assert dispatcher.overdue(18.9) == []
    assert dispatcher.overdue(19.0) == [("a", 2)]


def test_one_stall_moves_the_estimate_by_less_than_half_and_one_quick_answer_redeems_it():
    node = Node("a", estimate=1.0)
    node.answer(Flight(0, 1.0, 0.0), 1000.0)
    assert node.estimate == pytest.approx(1.4)
    node.estimate = 20.0
    node.answer(Flight(1, 1.0, 2000.0), 2001.0)
    assert node.estimate < 3.0
