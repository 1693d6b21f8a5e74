"""One thread at a time runs models, in the order in which they came."""

from __future__ import annotations

import threading

import pytest

from paifuser_lab.machine import turns
from paifuser_lab.machine.turns import TurnLock

TIMEOUT_S = 30.0


@pytest.fixture
def released(monkeypatch):
    """The threads that released their pool of OpenMP threads, in order."""
    names = []
    monkeypatch.setattr(
        turns, "release_pool", lambda: names.append(threading.current_thread().name)
    )
    return names


def until(is_so):
    """Wait until something is so, in other threads."""
    waiting = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.005)):
        if is_so():
            return
        waiting.wait(0.005)
    raise AssertionError("it did not become so")


def in_thread(work, name="other"):
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_gives_its_turn_up_comes_after_the_one_that_waits(released):
    lock, order = TurnLock(), []

    def take_turns(name, count):
        for _ in range(count):
            with lock:
                order.append(name)
                until(lambda: lock.is_awaited or len(order) > 6)

    threads = [in_thread(lambda name=name: take_turns(name, 4), name) for name in "ab"]
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert order[:6] in (list("ababab"), list("bababa")) and sorted(order) == list("aaaabbbb")


def test_a_turn_within_a_turn_is_had_at_once_and_lasts_until_the_outer_ends(released):
    lock, had = TurnLock(), threading.Event()

    def wait_for_it():
        with lock:
            had.set()

    with lock:
        thread = in_thread(wait_for_it)
        until(lambda: lock.is_awaited)
        with lock, lock:
            assert lock.acquire(blocking=False)
            lock.release()
        assert not had.is_set()
    thread.join(TIMEOUT_S)
    assert had.is_set() and not lock.is_awaited


def test_who_waits_and_who_hands_over_has_no_pool_meanwhile(released):
    lock = TurnLock()
    with lock:
        pass
    assert released == [], "nobody else runs models"
    with lock:
        thread = in_thread(lambda: (lock.acquire(), lock.release()))
        until(lambda: lock.is_awaited)
        assert released == ["other"]
    thread.join(TIMEOUT_S)
    assert released == ["other", threading.current_thread().name]


def test_a_turn_is_not_taken_without_waiting_while_another_has_it_or_waits(released):
    lock, taken = TurnLock(), []
    with lock:
        in_thread(lambda: taken.append(lock.acquire(blocking=False))).join(TIMEOUT_S)
        waiting = in_thread(lambda: (lock.acquire(), lock.release()))
        until(lambda: lock.is_awaited)
        in_thread(lambda: taken.append(lock.acquire(blocking=False))).join(TIMEOUT_S)
    waiting.join(TIMEOUT_S)
    assert taken == [False, False] and lock.acquire(blocking=False)
    lock.release()


def test_only_who_has_the_turn_gives_it_up(released):
    lock = TurnLock()
    with pytest.raises(RuntimeError, match="only be given up by the thread that has it"):
        lock.release()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert lock.acquire(blocking=False)
    lock.release()


def test_an_interrupt_while_a_turn_is_given_up_leaves_it_to_the_one_that_waits(monkeypatch):
    lock, had, given_up_by = TurnLock(), threading.Event(), threading.current_thread()

    def interrupted():
        if threading.current_thread() is given_up_by:
            raise KeyboardInterrupt

    monkeypatch.setattr(turns, "release_pool", interrupted)
    lock.acquire()
    in_thread(lambda: (lock.acquire(), had.set(), lock.release()))
    until(lambda: lock.is_awaited)
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert had.wait(TIMEOUT_S)
