"""The driver over workers that answer as a test has them answer."""

from __future__ import annotations

import queue

import pytest

from paifuser_lab.errors import StreamError
from paifuser_lab.streaming import Group, Items
from paifuser_lab.streaming.dispatcher import Dispatcher
from paifuser_lab.streaming.driver import Driver
from paifuser_lab.streaming.pool import Answered, Asked, Joined
from paifuser_lab.streaming.statistics import MARKS, Statistics
from paifuser_lab.streaming.worker import Answer


class Pool:
    """One worker, `a`, that joins at once; `reply` makes the answers to a group sent to it."""

    starting = 0

    def __init__(self, reply=None):
        self.inbox, self.reply = queue.SimpleQueue(), reply
        self.sent, self.is_closed = [], False

    def start(self):
        self.inbox.put(Joined("a"))

    def send(self, node, group, offsets):
        self.sent.append(group.sequence)
        for answer in self.reply(group):
            self.inbox.put(Answered(node, group.sequence, offsets, answer))

    def look(self):
        return

    def remove(self, node):
        return

    def close(self):
        self.is_closed = True


def same(group, seconds=0.0):
    return [Answer(tuple(group.payload), (seconds,))]


def run(pool, source=None):
    """Start a driver; returns it with what it delivered."""
    statistics = Statistics(source="items", engine="threads", stages=["s"], sink="", expected=None)
    dispatcher = pool.dispatcher = Dispatcher(hedge=None)
    source = source or Items(range(10), group=2)
    driver = Driver(source, pool, pool.inbox, dispatcher, statistics)
    driver.start()
    indices = []
    try:
        while (results := driver.take()) is not None:
            indices += [result.index for result in results]
            driver.consumed()
    finally:
        driver.close()
    return driver, indices


def test_a_copy_that_arrives_changed_after_its_group_is_settled_is_not_counted_again():
    def changed(group):  # each copy that is sent answers twice
        return [Answer(is_corrupt=True)] * 2 if group.sequence == 3 else same(group)

    driver, indices = run(Pool(changed))
    assert indices == list(range(10))
    report = driver.report()
    assert (report.corrupt, report.duplicates, report.set_aside) == (3, 1, 2)


def test_a_worker_that_joins_between_two_looks_of_the_driver_is_not_taken_for_lost():
    class Racing(Pool):
        is_joined = False

        def start(self):
            return

        @property
        def starting(self):  # the worker announces itself, and is not counted any more
            if not self.is_joined:
                self.is_joined = True
                self.inbox.put(Joined("a"))
            return 0

    assert run(Racing(same))[1] == list(range(10))


def test_workers_are_ended_although_they_could_not_all_be_started():
    class Unpicklable(Pool):
        def start(self):
            raise StreamError("The stages cannot be sent to a worker.")

    pool = Unpicklable()
    with pytest.raises(StreamError, match="cannot be sent"):
        run(pool)
    assert pool.is_closed


def test_a_stream_whose_last_worker_is_removed_ends_by_its_name():
    class Leaving(Pool):
        def send(self, node, group, offsets):
            super().send(node, group, offsets)
            self.inbox.put(Asked(lambda: self.dispatcher.leave(node)))

    with pytest.raises(StreamError, match="No worker is left: a was removed"):
        run(Leaving(same))


def test_answers_noticed_at_once_teach_what_the_worker_measured():
    driver, _ = run(Pool(lambda group: same(group, seconds=20.0)))
    (node,) = driver.report().nodes
    assert node.estimate_ms >= 10_000  # of one of the two frames


def test_groups_without_frames_pass():
    class Gaps:
        name, frames = "gaps", None

        def groups(self, start=0):
            for sequence in range(6):
                frames = [sequence] if sequence % 2 else []
                yield Group(sequence, sequence // 2, len(frames), frames)

    pool = Pool(same)
    assert run(pool, Gaps())[1] == [0, 1, 2]
    assert pool.sent == [1, 3, 5]


def test_of_workers_that_are_gone_the_latest_are_kept_and_the_shares_stay():
    statistics = Statistics(source="items", engine="ray", stages=[], sink="", expected=None)
    for number in range(MARKS + 50):
        statistics.join(f"w{number}", "")
        statistics.answer(f"w{number}", 4, (), 0.0)
        if number:
            statistics.part(f"w{number}", "lost", "killed")
    nodes = statistics.report(Dispatcher(), "running").nodes
    assert len(nodes) == MARKS + 1 and nodes[0].name == "w0" and nodes[-1].state == "lost"
    assert nodes[0].share == pytest.approx(1 / (MARKS + 50))
