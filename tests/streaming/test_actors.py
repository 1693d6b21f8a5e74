"""Streams over actors of Ray: a Ray that answers as a test has it, then a real one."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from paifuser_lab.errors import StreamError
from paifuser_lab.machine import cluster as joining
from paifuser_lab.machine.cluster import connect
from paifuser_lab.streaming import Group, Items, Map, Opened, Stream, driver
from paifuser_lab.streaming import actors as room
from paifuser_lab.streaming.pool import Answered, Asked, Joined, Lost, Returned
from paifuser_lab.streaming.worker import Answer

ray = pytest.importorskip("ray")
WAIT_S = 60  # for what comes soon; not a measurement
LOOK_S = 0.02


class FakeActor:
    """Keeps its calls; a test answers them."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def remote(*_):
            future = Future()
            self.calls.append((name, future))
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=remote)

    def answer(self, name, value):
        next(future for known, future in self.calls if known == name).set_result(value)


class FakeRay:
    """The part of ray that a pool uses."""

    exceptions, joined = ray.exceptions, "10.0.0.1:6379"

    def __init__(self):
        self.actors, self.killed, self.waited = [], [], []
        self.kill = self.killed.append

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.joined)

    def remote(self, _):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._start))

    def wait(self, refs, **_):
        self.waited += refs

    def _start(self, _):
        self.actors.append(FakeActor())
        return self.actors[-1]


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRay()
    for place in (room, joining):
        monkeypatch.setattr(place, "ray_module", lambda: fake)
    return fake


def opened_pool(fake, workers=1):
    pool = room.ActorPool(queue.SimpleQueue(), [], workers)
    pool.start()
    for actor in fake.actors:
        actor.answer("begin", "machine")
        assert pool._inbox.get(timeout=WAIT_S).host == "machine"
    return pool


def events_of(pool):
    events = []
    while not pool._inbox.empty():
        events.append(pool._inbox.get())
        if isinstance(events[-1], Asked):
            events[-1].action()
    return events


GONE = [
    ray.exceptions.ActorDiedError(),
    ray.exceptions.NodeDiedError("the machine is gone"),
    ray.exceptions.ObjectLostError("ab", None, ""),
    ray.exceptions.OutOfMemoryError("the machine has no memory left"),
    ray.exceptions.WorkerCrashedError(),
]


@pytest.mark.parametrize("value", GONE, ids=lambda value: type(value).__name__)
def test_an_answer_lost_with_its_machine_is_a_lost_worker_and_no_failure_of_frames(fake, value):
    pool = opened_pool(fake)
    pool.send("actor-0", Group(0, 0, 1, [5]), None)
    fake.actors[0].answer("process", value)
    *asked, lost = events_of(pool)
    assert isinstance(lost, Lost) and lost.node == "actor-0"
    assert len(asked) == 2 and fake.killed == fake.actors[:1] and len(fake.actors) == 2
    assert pool.starting == 1


def test_a_worker_that_cannot_be_reached_for_a_moment_gets_its_group_again(fake):
    pool = opened_pool(fake)
    pool.send("actor-0", Group(0, 0, 1, [5]), None)
    fake.actors[0].answer("process", ray.exceptions.ActorUnavailableError("busy", None))
    event = pool._inbox.get(timeout=WAIT_S)
    assert isinstance(event, Returned) and event.group == 0 and not fake.killed


def test_an_answer_that_cannot_travel_is_an_error_of_its_frames(fake):
    pool = opened_pool(fake)
    pool.send("actor-0", Group(0, 0, 3, [5, 6, 7]), (1, 2))
    fake.actors[0].answer("process", TypeError("cannot pickle a lock"))
    (event,) = events_of(pool)
    assert isinstance(event, Answered) and len(event.answer.values) == 2
    assert "cannot pickle a lock" in str(event.answer.values[0])


def test_workers_that_keep_dying_are_not_replaced_for_ever_but_after_an_answer_anew(fake):
    pool = opened_pool(fake)
    pool._lose("actor-0", "", may_replace=True)
    for started in range(2, room.ATTEMPTS + 1):
        events_of(pool)
        assert len(fake.actors) == started
        fake.actors[-1].answer("begin", GONE[0])
    events_of(pool)
    fake.actors[-1].answer("begin", "machine")
    pool.send(f"actor-{room.ATTEMPTS}", Group(0, 0, 1, [5]), None)
    fake.actors[-1].answer("process", Answer((5,)))
    assert [type(event) for event in events_of(pool)] == [Joined, Answered]
    for _ in range(room.ATTEMPTS + 1):
        pool._lose(next(iter(pool._actors)), "no CPU", may_replace=True)
        started = len(fake.actors)
        *_, last = events_of(pool)
    assert len(fake.actors) == started and "no CPU" in last.reason


def test_a_worker_whose_stages_cannot_open_is_not_replaced(fake):
    pool = room.ActorPool(queue.SimpleQueue(), [], 1)
    pool.start()
    failed = StreamError("The stage 'infer' could not open: There is no folder 'mine'.")
    fake.actors[0].answer("begin", failed)
    *_, lost = events_of(pool)
    assert isinstance(lost, Lost) and "no folder 'mine'" in lost.reason
    assert (pool.starting, len(fake.actors), fake.killed) == (0, 1, fake.actors)


def test_ray_leaves_the_signal_by_which_a_command_is_ended_to_it(fake, monkeypatch):
    def init(**_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    monkeypatch.setattr(fake, "is_initialized", lambda: False)
    monkeypatch.setattr(fake, "init", init, raising=False)
    before = signal.signal(signal.SIGTERM, print)
    try:
        assert connect(None)
        assert signal.getsignal(signal.SIGTERM) is print
    finally:
        signal.signal(signal.SIGTERM, before)


def test_stages_are_closed_before_their_actors_are_ended(fake):
    pool = opened_pool(fake, workers=2)
    pool.add()
    pool.close()
    closed = [[name for name, _ in actor.calls] for actor in fake.actors]
    assert closed == [["begin", "close"], ["begin", "close"], ["begin"]]  # the last is not open yet
    assert len(fake.waited) == 2 and fake.killed == fake.actors


def test_a_process_keeps_to_the_cluster_that_it_has_joined(fake):
    for address in (None, "local", "auto", fake.joined):
        assert connect(address) is False
    with pytest.raises(StreamError, match=r"has joined the Ray cluster at 10\.0\.0\.1:6379, not"):
        connect("10.0.0.2:6379")


def test_on_a_cluster_of_its_own_a_stream_has_as_many_actors_as_it_would_have_threads(
    fake, monkeypatch
):
    monkeypatch.setattr(room, "connect", lambda address, cpus: True)
    monkeypatch.setattr(room, "default_workers", lambda: 3)
    room.ActorPool(queue.SimpleQueue(), []).start()
    assert len(fake.actors) == 3


# a real Ray


class Infer(Opened):
    """Squares a number, with its process; what it is given at 7 cannot travel back."""

    name = "infer"

    def open(self):
        self.pid = os.getpid()

    def __call__(self, items):
        return [threading.Lock() if item == 7 else (item**2, self.pid) for item in items]


@pytest.fixture(scope="module")
def cluster():
    assert connect(None, cpus=2)
    yield
    ray.shutdown()


def stream_of(frames, *stages, **options):
    options = {"workers": 1, "options": {"num_cpus": 0.1}, **options}
    return Stream(Items(frames, group=5), *stages, engine="ray", **options)


def up(stream):
    return [node.name for node in stream.report.nodes if node.state == "up"]


def test_actors_join_and_leave_and_one_that_is_killed_is_replaced_and_nothing_is_lost(cluster):
    stream = stream_of(lambda: itertools.count(), Infer(), workers=None, hedge=None)
    results = iter(stream)
    seen = [next(results) for _ in range(10)]
    assert [result.index for result in seen if result.error] == [5, 6, 7, 8, 9]  # of one group
    assert up(stream) == ["actor-0"]  # one a machine
    stream.add_worker()
    while up(stream) != ["actor-0", "actor-1"]:
        time.sleep(LOOK_S)
    os.kill(seen[0].value[1], signal.SIGKILL)
    while up(stream) != ["actor-1", "actor-2"]:  # noticed when the next group is sent to it
        seen.append(next(results))
        time.sleep(LOOK_S)
    stream.remove_worker("actor-1")
    while up(stream) != ["actor-2"] or len({result.node for result in seen}) < 3:
        seen.append(next(results))
    results.close()
    assert [result.index for result in seen] == list(range(len(seen)))
    good = [result for result in seen if not result.error]
    assert [result.value[0] for result in good] == [result.index**2 for result in good]
    assert [result.index for result in seen if result.error] == [5, 6, 7, 8, 9]
    report = stream.report
    assert (report.engine, report.state, report.lost_nodes) == ("ray", "stopped", 1)
    processes = {result.value[1] for result in good}
    assert len(processes) == 3 and os.getpid() not in processes
    assert ray.is_initialized()  # it was here before the stream


def test_stages_that_cannot_travel_end_the_stream(cluster):
    lock = threading.Lock()
    with pytest.raises(StreamError, match=r"The stages cannot be sent to a worker.*`open`"):
        stream_of(range(10), Map(lambda frame: lock)).run()


def test_what_cannot_be_had_is_waited_for_and_then_named(cluster, monkeypatch):
    monkeypatch.setattr(driver, "START_S", 0.3)
    with pytest.raises(StreamError, match=r"No worker started.*1 tpu a worker"):
        stream_of(range(3), Infer(), options={"resources": {"tpu": 1}}).run()


def test_a_cluster_that_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(StreamError, match=r"a Ray cluster at '127.*: .*refused.*runs Ray 2"):
        stream_of(range(3), Infer(), address="127.0.0.1:1").run()
