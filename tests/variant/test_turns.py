"""Measurements in two threads go on together, round by round, and leave the model as it was."""

from __future__ import annotations

import threading

import pytest

import paifuser_lab as lab
from paifuser_lab.machine.turns import QUIET
from paifuser_lab.measure import MachineWatch
from tests.support.models import Small, images

TIMEOUT_S = 60.0
ROUNDS = 6


class Meeting:
    """Two threads that wait for each other after each round."""

    def __init__(self):
        self.changed, self.done, self.met = threading.Condition(), [0, 0], []

    def arrive(self, number):
        with self.changed:
            self.done[number] += 1
            self.changed.notify_all()
            count = self.done[number]
            self.met.append(
                self.changed.wait_for(lambda: self.done[1 - number] >= count, TIMEOUT_S)
            )


def compared(work, arrive):
    return lab.compare(
        work, rounds=ROUNDS, threads=1, metric=False, on_round=lambda done, so_far: arrive()
    )


def profiled(work, arrive):
    # asked before every round but the first
    return lab.profile(work, runs=ROUNDS + 1, threads=1, should_stop=arrive)


@pytest.mark.parametrize(
    "measures", [(compared, compared), (profiled, profiled), (compared, profiled)]
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_two_threads_measure_in_turn(measures, is_shared, one_thread, monkeypatch):
    turns, turn = [], MachineWatch.turn
    monkeypatch.setattr(MachineWatch, "turn", lambda watch: turns.append(watch) or turn(watch))
    works = [lab.Workload(Small(), images(), name="small") for _ in measures]
    if is_shared:
        works[1] = works[0]
    for work in works:
        work.model.train()
    weights = [value.clone() for value in works[0].model.state_dict().values()]
    meeting, results = Meeting(), {}

    def run(number):
        results[number] = measures[number](works[number], lambda: meeting.arrive(number))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    assert meeting.met == [True] * 2 * ROUNDS, "each went on while the other was between rounds"
    assert {turns.count(watch) >= ROUNDS for watch in turns} == {True} and len(set(turns)) == 2
    assert len(results) == 2 and QUIET.acquire(blocking=False)
    QUIET.release()
    assert all(work.model.training for work in works)
    after = works[0].model.state_dict().values()
    assert all(before.equal(value) for before, value in zip(weights, after, strict=True))
