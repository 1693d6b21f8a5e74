"""Watching the machine: what other processes took, who they are, and what calls waited."""

from __future__ import annotations

import threading
import time
from collections import namedtuple

import pytest

from paifuser_lab.machine.host import CoreUse, core_use, others_share, thread_seconds
from paifuser_lab.measure import MachineWatch, Samples, spread, waited_share, watch
from paifuser_lab.measure.watch import Clock

Rate = namedtuple("Rate", ["current"])
quality_of = MachineWatch.quality  # before the tests' machine becomes a quiet one


@pytest.fixture
def load(monkeypatch):
    """The machine's counters: wall, own and busy seconds of two cores, and each process's."""
    counters = {"wall": 0.0, "own": 0.0, "busy": 0.0, "processes": {}, "serving": {}}
    monkeypatch.setattr(
        watch,
        "core_use",
        lambda: CoreUse(
            counters["wall"], counters["own"], counters["busy"], 2, {}, dict(counters["serving"])
        ),
    )
    monkeypatch.setattr(watch, "_cpu_seconds", lambda: dict(counters["processes"]))
    return counters


def named(quality):
    return [(one.name, one.cores) for one in quality.busiest]


def test_others_are_named_by_the_cores_that_they_used(load):
    load["processes"] = {(1, 0.0): ("python", 5.0), (2, 0.0): ("python", 1.0), (3, 0.0): ("sh", 1)}
    started = MachineWatch()
    load |= {"wall": 10.0, "own": 9.0, "busy": 18.0}
    load["processes"] = {
        (1, 0.0): ("python", 9.0),
        (2, 0.0): ("python", 4.0),
        (3, 0.0): ("sh", 1.2),
        (4, 0.0): ("node", 2.0),
    }
    quality = quality_of(started)
    assert quality.others_share == pytest.approx(0.45) and quality.state == "busy"
    assert named(quality) == [("python, 2 processes", 0.7), ("node", 0.2)]
    assert quality_of(started, with_processes=False).busiest == ()


def test_too_short_a_time_says_nothing_about_others(load):
    started = MachineWatch()
    load |= {"wall": 0.05, "busy": 0.05}
    assert quality_of(started).others_share is None


def test_another_thread_of_this_process_is_load_too():
    is_over = threading.Event()

    def work():
        while not is_over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=work, name="training")
    thread.start()
    before = core_use()
    while thread_seconds(before, core_use()).get("training", 0.0) < 0.1:
        time.sleep(0.05)
    now = core_use()
    is_over.set()
    thread.join()
    assert others_share(before, now) > 0.02


def test_a_cell_that_runs_beside_a_measurement_is_named(load, monkeypatch):
    monkeypatch.setattr(watch, "notebook_shell", object)
    monkeypatch.setattr(watch, "thread_seconds", lambda before, now: {"MainThread": 5.0})
    started = MachineWatch()
    load |= {"wall": 10.0, "own": 9.0, "busy": 15.0}
    assert ("a cell of this notebook", 0.5) in named(quality_of(started))


def test_the_measuring_thread_itself_is_no_load():
    before = core_use()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        sum(range(1000))
    assert threading.current_thread().name not in thread_seconds(before, core_use())


def test_what_another_thread_measures_between_two_turns_is_no_load(load, monkeypatch):
    turn = watch.QUIET
    monkeypatch.setattr(type(turn), "is_awaited", property(lambda lock: load["is_awaited"]))
    load["is_awaited"] = True
    started = MachineWatch()
    with started.turn():
        load |= {"wall": 10.0, "own": 10.0, "busy": 10.0}
    load |= {"wall": 14.0, "own": 10.0, "busy": 18.0}  # both cores, by the one that waited
    assert quality_of(started).others_share == 0.0
    load["is_awaited"] = False
    with started.turn():
        load |= {"wall": 20.0, "own": 16.0, "busy": 27.0}
    assert quality_of(started).others_share == pytest.approx(3 / 32), "16 s of two cores count"


def test_what_others_took_and_who_they_are_come_from_the_same_time(load, monkeypatch):
    monkeypatch.setattr(type(watch.QUIET), "is_awaited", property(lambda lock: True))
    load["processes"] = {(1, 0.0): ("sh", 0.0)}
    started = MachineWatch()
    with started.turn():
        load |= {"wall": 10.0, "own": 9.0, "busy": 14.0}
        load["processes"] = {(1, 0.0): ("sh", 5.0)}
    load |= {"wall": 20.0, "own": 9.0, "busy": 32.0}  # another thread has the turn
    load["processes"] = {(1, 0.0): ("sh", 13.0)}
    with started.turn():
        load |= {"wall": 30.0, "own": 18.0, "busy": 46.0}
        load["processes"] = {(1, 0.0): ("sh", 18.0)}
    quality = quality_of(started)
    assert quality.others_share == pytest.approx(0.25) and named(quality) == [("sh", 0.5)]


def test_what_no_listed_process_took_is_listed_too(load):
    started = MachineWatch()
    load |= {"wall": 10.0, "own": 9.0, "busy": 25.0}
    load["processes"] = {(1, 0.0): ("sh", 4.0), (2, 0.0): ("awk", 0.2)}
    quality = quality_of(started)
    assert named(quality) == [("unnamed processes", 1.2), ("sh", 0.4)]
    assert sum(one.cores for one in quality.busiest) == pytest.approx(2 * quality.others_share)


def test_the_page_and_the_server_are_no_load(load):
    load["processes"] = {(7, 0.0): ("chromium", 0.0), (8, 0.0): ("sh", 0.0)}
    started = MachineWatch()
    load |= {"wall": 10.0, "own": 9.0, "busy": 17.0, "serving": {7: 5.0}}
    load["processes"] = {(7, 0.0): ("chromium", 5.0), (8, 0.0): ("sh", 3.0)}
    quality = quality_of(started)
    assert quality.others_share == pytest.approx(0.15) and named(quality) == [("sh", 0.3)]


def test_the_time_until_a_turn_comes_is_no_load(load):
    started, has_turn, may_end = MachineWatch(), threading.Event(), threading.Event()

    def keep_turn():
        with watch.QUIET:
            has_turn.set()
            while not watch.QUIET.is_awaited:
                may_end.wait(0.005)
            load.update({"wall": 30.0, "own": 1.0, "busy": 50.0})

    thread = threading.Thread(target=keep_turn)
    thread.start()
    has_turn.wait(30.0)
    load |= {"wall": 1.0, "own": 1.0, "busy": 1.0}
    with started.turn():
        thread.join(30.0)
        load |= {"wall": 31.0, "own": 2.0, "busy": 51.0}
    assert quality_of(started).others_share == 0.0


def test_a_turn_is_given_up_where_the_counters_cannot_be_read(load, monkeypatch):
    taken = []

    def take():
        taken.append(watch.QUIET.acquire(blocking=False))
        watch.QUIET.release()

    monkeypatch.setattr(type(watch.QUIET), "is_awaited", property(lambda lock: True))
    started = MachineWatch()
    with pytest.raises(ZeroDivisionError), started.turn():
        monkeypatch.setattr(watch, "core_use", lambda: 1 / 0)
    thread = threading.Thread(target=take)
    thread.start()
    thread.join(30.0)
    assert taken == [True]


def test_this_machine_can_be_watched():
    started = MachineWatch()
    time.sleep(0.15)
    assert 0 <= quality_of(started).others_share <= 1


def test_a_comparison_of_which_every_interval_is_useless_is_hopeless(load):
    started = MachineWatch()
    assert quality_of(started, intervals=[(0.4, 2.1), (0.1, 9.0)]).state == "unusable"
    assert quality_of(started, intervals=[(0.4, 2.1), (0.9, 1.1)]).state == "quiet"


def test_a_call_waits_while_its_process_has_less_than_one_core():
    calm, robbed = (
        Samples(rounds_ms=[10.0, 10.0], cpu_ms=[cpu, cpu]) for cpu in (19.5, 6.0)
    )  # two threads, and one that had 60% of a core
    assert waited_share([calm]) == 0.0
    assert waited_share([robbed]) == pytest.approx(0.4)
    assert waited_share([Samples()]) is None


def test_the_spread_is_half_the_middle_of_the_rounds_over_their_median():
    assert spread([10.0] * 9 + [30.0]) == pytest.approx(0.55, abs=0.01)
    assert spread([10.0] * 21) == 0.0 and spread([1.0, 2.0]) is None


def test_the_clock_is_compared_with_the_highest_rate_seen(monkeypatch):
    rates = iter([3000.0, 1500.0, 3300.0])

    def of_each(percpu):
        assert percpu
        return [Rate(800.0), Rate(next(rates)), Rate(9000.0)]

    monkeypatch.setattr(watch.psutil, "cpu_freq", of_each)
    monkeypatch.setattr(watch, "own_cpus", lambda: [0, 1])  # one of them without work
    clock = Clock()
    assert [clock.share() for _ in range(3)] == [1.0, 0.5, 1.0]
    monkeypatch.setattr(watch.psutil, "cpu_freq", lambda percpu: [])
    assert clock.share() is None
