"""Streams over actors of a real Ray on this machine, started once for the file."""

from __future__ import annotations

import itertools
import os
import signal
import threading

import pytest

from paifuser_lab.errors import FileError, StreamError
from paifuser_lab.streaming import Items, Map, Opened, Stream

ray = pytest.importorskip("ray")


class Infer(Opened):
    """Squares a number; opened once a worker."""

    name = "infer"

    def open(self):
        self.pid = os.getpid()

    def __call__(self, items):
        return [(item**2, self.pid) for item in items]


class Deadly(Infer):
    """Its process is killed at frame 40 the first time, and always at frame 77."""

    def __init__(self, flag):
        self.flag = str(flag)

    def __call__(self, items):
        is_first = 40 in items and not os.path.exists(self.flag)
        if is_first:
            open(self.flag, "w").close()
        if is_first or 77 in items:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(items)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    from paifuser_lab.streaming.actors import connect

    assert connect(None, cpus=2)
    yield
    ray.shutdown()


def stream_of(frames, *stages, **options):
    options = {"workers": 2, "options": {"num_cpus": 0.1}, **options}
    return Stream(Items(frames, group=5), *stages, engine="ray", **options)


def test_killed_actors_are_replaced_and_only_the_frame_that_kills_is_set_aside(tmp_path):
    stream = stream_of(range(100), Deadly(tmp_path / "flag"), hedge=None)
    results = list(stream)
    assert [result.index for result in results] == list(range(100))
    good = [result for result in results if not result.error]
    assert [result.value[0] for result in good] == [index**2 for index in range(100) if index != 77]
    report = stream.report
    assert (report.set_aside, report.engine) == (1, "ray") and report.lost_nodes >= 5
    assert report.failures[0].index == 77 and report.failures[0].stage == "worker"
    assert len({result.value[1] for result in good}) >= 3
    assert os.getpid() not in {result.value[1] for result in good}


def test_stages_that_cannot_open_or_travel_end_the_stream():
    class Missing(Infer):
        def open(self):
            raise FileError("There is no folder 'mine'.")

    with pytest.raises(StreamError, match="'infer' could not open: There is no folder 'mine'"):
        stream_of(range(10), Missing()).run()
    lock = threading.Lock()
    with pytest.raises(StreamError, match=r"The stages cannot be sent to a worker.*`open`"):
        stream_of(range(10), Map(lambda frame: lock)).run()


def test_what_cannot_be_had_is_waited_for_and_then_named():
    options = {"options": {"resources": {"tpu": 1}}, "start_timeout_s": 0.3}
    with pytest.raises(StreamError, match=r"No worker started.*1 tpu a worker"):
        stream_of(range(3), Infer(), **options).run()


def test_workers_join_and_leave_and_an_answer_that_cannot_travel_is_an_error_of_its_frames():
    stream = stream_of(lambda: itertools.count(), lock_at_7, workers=None)  # one a machine
    results = iter(stream)
    first = [next(results) for _ in range(10)]
    assert [result.index for result in first if result.error] == [5, 6, 7, 8, 9]
    assert len(stream.report.nodes) == 1
    stream.add_worker()
    while len([node for node in stream.report.nodes if node.state == "up"]) < 2:
        next(results)
    stream.remove_worker("actor-0")
    while stream.report.nodes[0].state != "left":
        next(results)
    results.close()
    assert stream.report.state == "stopped"
    assert ray.is_initialized()  # it was here before the stream


def lock_at_7(frame):
    return threading.Lock() if frame == 7 else frame


def test_a_cluster_that_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("refused")))
    with pytest.raises(StreamError, match=r"a Ray cluster at '127.*: refused.*runs Ray 2"):
        stream_of(range(3), Infer(), address="127.0.0.1:1").run()
