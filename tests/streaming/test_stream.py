"""Streams in threads: order, faults, pauses, restarts, bad input."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import FileError, MissingExtraError, StreamError
from paifuser_lab.records import Record, StreamReport
from paifuser_lab.streaming import FrameError, Group, Items, Map, Opened, Stream, worker
from paifuser_lab.streaming.source import checksum as crc


def double(frame):
    return 2 * frame


def values_of(stream):
    return [result.value for result in stream]


def test_results_come_once_and_in_order_from_several_workers():
    busy = threading.Barrier(3, timeout=20)

    def meet(frame):
        if frame % 8 == 0 and frame < 24:
            busy.wait()  # three groups are with three workers at once
        return double(frame)

    stream = Stream(range(100), meet, workers=3)
    results = list(stream)
    assert [result.index for result in results] == list(range(100))
    assert [result.value for result in results] == [2 * index for index in range(100)]
    assert all(result.latency_ms > 0 and result.error is None for result in results)
    report = stream.report
    assert (report.state, report.frames, report.groups) == ("finished", 100, 13)
    assert len([node for node in report.nodes if node.groups]) == 3
    assert sum(node.frames for node in report.nodes) == 100


def test_a_run_writes_each_group_to_the_sink_and_reports(tmp_path):
    seen = []
    stream = Stream(Items(range(20), group=6), Map(double, name="twice"), sink=seen.append)
    report = stream.run()
    assert [result.value for result in seen] == [2 * index for index in range(20)]
    assert (report.groups, report.stages, report.expected_frames) == (4, ("twice",), 20)
    assert {latency.name for latency in report.stage_latency} == {"twice", "waiting"}
    assert "20 frames" in str(report) and report.title == "items → twice → callback"
    assert StreamReport.load(report.save(tmp_path / "report.json")) == report
    assert isinstance(Record.load(tmp_path / "report.json"), StreamReport)


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(0, 40),
    group=st.integers(1, 9),
    workers=st.integers(1, 3),
    bad=st.sets(st.integers(0, 39)),
)
def test_a_frame_that_raises_is_set_aside_and_the_others_pass(count, group, workers, bad):
    def check(frame):
        if frame in bad and count > len(bad & set(range(count))) + 8:
            raise ValueError(f"{frame} is poison")
        return frame

    stream = Stream(Items(range(-9, count), group=group), check, double, workers=workers)
    results = list(stream)
    assert [result.index for result in results] == list(range(count + 9))
    failed = {result.index - 9 for result in results if result.error}
    assert failed <= bad
    assert all(result.value == 2 * (result.index - 9) for result in results if not result.error)
    assert stream.report.set_aside == len(failed)


def test_a_frame_set_aside_keeps_its_stage_and_message():
    def check(frame):
        if frame == 5:
            raise ValueError("a\nb")
        return frame

    stream = Stream(range(10), check, double)
    failed = list(stream)[5]
    assert failed.value is None and str(failed.error) == "check: ValueError: a"
    (aside,) = stream.report.failures
    assert (aside.index, aside.stage) == (5, "check")


def test_a_stage_may_return_an_error_for_one_item_itself():
    stage = Map(lambda frame: FrameError("half", "odd") if frame % 2 else frame, name="half")
    results = list(Stream(range(12), stage, double))
    assert [result.index for result in results if result.error] == [1, 3, 5, 7, 9, 11]


def test_a_stream_all_of_whose_frames_fail_is_ended():
    def fail(frame):
        raise ValueError("no model")

    with pytest.raises(StreamError, match=r"Each of the first .* frames failed.*'fail'.*no model"):
        Stream(range(1000), fail).run()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (lambda items: items[:-1], "7 for 8"),
        (lambda items: items * 2, "16 for 8"),
        (lambda items: None, "NoneType"),
    ],
)
def test_a_stage_that_returns_too_few_or_too_many_is_refused_by_name(answers, words):
    class Unequal(Opened):
        name = "unequal"

        def __call__(self, items):
            return answers(items)

    with pytest.raises(StreamError, match=f"The stage 'unequal' returned {words}"):
        Stream(range(8), Unequal()).run()


class Once:
    """Fires for the first `times` calls, over all workers."""

    def __init__(self, times=1):
        self.left, self.lock = times, threading.Lock()

    def __call__(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0


def test_workers_that_die_are_replaced_and_what_they_held_is_sent_again():
    dies = Once(2)

    def mortal(frame):
        if frame in (20, 60) and dies():
            raise SystemExit("killed")
        return frame

    stream = Stream(range(100), mortal, workers=2)
    assert values_of(stream) == list(range(100))
    report = stream.report
    assert (report.lost_nodes, report.set_aside) == (2, 0)
    assert report.sent_again >= 1


def test_a_frame_that_kills_its_worker_is_set_aside_alone():
    def poison(frame):
        if frame == 13:
            raise SystemExit("segmentation fault")
        return frame

    stream = Stream(range(40), poison, workers=2, hedge=None)
    results = list(stream)
    assert [result.index for result in results if result.error] == [13]
    assert [result.value for result in results if not result.error] == [*range(13), *range(14, 40)]
    assert "segmentation fault" in results[13].error.message
    assert stream.report.lost_nodes == 4  # twice with the whole group, twice with the frame


def test_a_stage_that_hangs_is_timed_out_and_its_group_goes_to_another_worker():
    hangs, released = Once(), threading.Event()

    def slow(frame):
        if frame == 9 and hangs():
            released.wait(20)
        return frame

    stream = Stream(range(40), slow, workers=2, hedge=None, timeout_s=0.3)
    try:
        assert values_of(stream) == list(range(40))
    finally:
        released.set()
    assert stream.report.hung == 1
    assert any(event.kind == "hung" and event.group == 1 for event in stream.report.events)


def test_the_group_that_all_wait_for_is_hedged_and_its_second_answer_dropped():
    stalls, released = Once(), threading.Event()

    def stall(frame):
        if frame == 30 and stalls():
            released.wait(20)
        return frame

    stream = Stream(Items(range(200), group=2), stall, workers=3)
    try:
        assert values_of(stream) == list(range(200))
    finally:
        released.set()
    assert stream.report.hedged >= 1 and stream.report.hung == 0


class Decode(Opened):
    """Bytes to the numbers in them."""

    name, takes_group = "decode", True

    def __init__(self, kills=()):
        self.kills = kills

    def __call__(self, items):
        if items in self.kills:
            raise SystemExit("a broken decoder")
        return list(items)


class Encoded:
    """Groups of three bytes, some of which change on their way."""

    name, frames, can_reopen = "bytes", 30, True

    def __init__(self, changed=None):
        self.changed = changed or {}

    def groups(self, start=0):
        for sequence in range(start, 10):
            first = 3 * sequence
            group = Group(sequence, first, 3, bytes(range(first, first + 3)))
            if self.changed.get(sequence):
                self.changed[sequence] -= 1
                group = Group(sequence, first, 3, b"xyz", group.sealed().checksum)
            yield group


def test_an_encoded_group_is_sealed_as_it_is_read_and_checked_before_it_is_decoded(monkeypatch):
    checked = []
    monkeypatch.setattr(worker, "checksum", lambda payload: checked.append(payload) or crc(payload))
    Stream(Encoded(), Decode(), double).run()
    assert len(set(checked)) == 10  # a slow one is sent twice


def test_an_encoded_group_is_decoded_by_the_worker():
    assert values_of(Stream(Encoded(), Decode(), double)) == [2 * index for index in range(30)]


def test_a_group_whose_bytes_changed_is_refused_by_its_checksum_and_set_aside():
    stream = Stream(Encoded(changed={4: 1}), Decode(), double, hedge=None)
    results = list(stream)
    assert [result.index for result in results if result.error] == [12, 13, 14]
    assert stream.report.corrupt == 3  # it was sent three times, each as it was read


def test_a_group_that_kills_the_decoder_is_set_aside_whole():
    stream = Stream(Encoded(), Decode(kills=(bytes([6, 7, 8]),)), double, workers=2, hedge=None)
    results = list(stream)
    assert [result.index for result in results if result.error] == [6, 7, 8]
    assert stream.report.lost_nodes == 4


def test_a_decoder_that_returns_too_few_frames_is_refused_by_name():
    class Short(Decode):
        def __call__(self, items):
            return list(items)[1:]

    with pytest.raises(StreamError, match="'decode' returned 2 frames for a group of 3"):
        Stream(Encoded(), Short()).run()


def test_a_source_that_fails_ends_the_stream_after_what_it_gave():
    def camera():
        yield from range(16)
        raise OSError("unplugged")

    received = []
    stream = Stream(camera(), double, sink=lambda result: received.append(result.index))
    with pytest.raises(StreamError, match="The source failed after group 1: OSError: unplugged"):
        stream.run()
    assert received == list(range(len(received)))


def test_an_error_of_this_package_in_a_source_passes_as_it_is():
    def camera():
        raise FileError("clip.mp4 has no video.")
        yield

    with pytest.raises(FileError, match=r"clip\.mp4 has no video"):
        Stream(camera(), double).run()


def test_nothing_is_read_past_the_window_while_the_reader_is_slow():
    read = []

    def camera():
        for index in range(1000):
            read.append(index)
            yield index

    results = iter(Stream(Items(camera(), group=1), double, workers=2, window=5))
    for count in range(1, 8):
        next(results)
        assert len(read) <= count + 5 + 1
    results.close()


def test_of_ten_thousand_frames_no_more_are_held_than_the_window_and_the_workers_have():
    class Frame:
        pass

    alive, counts = weakref.WeakSet(), []

    def camera():
        for _ in range(10_000):
            frame = Frame()
            alive.add(frame)
            counts.append(len(alive))
            yield frame

    stream = Stream(Items(camera(), group=20), lambda frame: None, workers=2, window=5)
    assert stream.run().frames == 10_000
    assert max(counts) <= 20 * (5 + 2 * 2 + 1)
    assert not stream._driver._works


def test_no_frames_give_no_results():
    stream = Stream([], double)
    assert list(stream) == [] and stream.report.state == "finished"


def test_a_stream_without_stages_passes_its_frames():
    assert values_of(Stream(range(5))) == list(range(5))


def test_a_paused_stream_sends_nothing_and_a_drained_one_finishes_what_it_read():
    stream = Stream(Items(iter(int, 1), group=1), lambda frame: frame, window=4, workers=1)
    results = iter(stream)
    next(results)
    stream.pause()
    while stream.report.state != "paused" or stream.report.in_flight_groups:
        pass
    taken = sum(1 for _ in itertools.islice(results, stream.report.held_groups - 1))
    assert stream.report.in_flight_groups == 0 and stream.report.frames == taken + 1
    stream.resume()
    next(results)
    stream.drain()
    assert len(list(results)) <= 4 + 1  # what the window held
    assert stream.report.state == "finished"


def test_a_paused_stream_that_is_drained_ends():
    stream = Stream(Items(iter(int, 1), group=1), lambda frame: frame, window=4, workers=1)
    results = iter(stream)
    next(results)
    stream.pause()
    stream.drain()
    list(results)
    assert stream.report.state == "finished"


def test_a_stopped_stream_ends_behind_what_it_delivered():
    written = []

    def sink(result):
        written.append(result.index)
        if result.index == 40:
            stream.stop()

    stream = Stream(Items(iter(int, 1)), double, sink=sink)
    report = stream.run()
    assert report.state == "stopped"
    assert written == list(range(len(written))) and len(written) >= 41


def test_workers_join_and_leave_while_it_runs():
    stream = Stream(Items(iter(int, 1), group=1), double, workers=1)
    results = iter(stream)
    next(results)
    stream.add_worker()
    while len([node for node in stream.report.nodes if node.state == "up"]) < 2:
        next(results)
    stream.remove_worker("thread-0")
    while stream.report.nodes[0].state != "left":
        next(results)
    with pytest.raises(StreamError, match="There is no worker 'thread-0'; there are thread-1"):
        stream.remove_worker("thread-0")
    index = next(results).index
    assert next(results).index == index + 1
    results.close()
    assert stream.report.state == "stopped"


@pytest.fixture
def workers_left():
    """The names of the workers' threads that run and did not before the test."""
    before = set(threading.enumerate())
    return lambda: [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and "paifuser-thread" in thread.name
    ]


def test_leaving_a_loop_early_ends_every_thread(workers_left):
    stream = Stream(range(10**6), double)
    for result in stream:
        if result.index == 10:
            break
    del result
    assert stream.report.state == "stopped" and not workers_left()


def test_an_interrupt_in_the_sink_aborts_it_and_ends_every_thread(workers_left):
    events = []

    class Sink:
        name, is_resumable = "file", False

        def open(self, token):
            events.append("open")

        def write(self, results):
            raise KeyboardInterrupt

        def close(self):
            events.append("close")

        def abort(self):
            events.append("abort")

    with pytest.raises(KeyboardInterrupt):
        Stream(range(100), double, sink=Sink()).run()
    assert events == ["open", "abort"]
    assert not workers_left()


def test_a_sink_that_fails_is_named():
    def full(result):
        raise OSError(28, "No space left on device")

    with pytest.raises(StreamError, match=r"The sink 'callback' failed: OSError: .*No space left"):
        Stream(range(10), double, sink=full).run()


def test_results_can_be_awaited():
    async def read():
        return [result.value async for result in Stream(range(30), double)]

    assert asyncio.run(read()) == [2 * index for index in range(30)]


def test_a_cancelled_task_ends_the_stream():
    entered = threading.Event()
    release = threading.Event()

    def wait(frame):
        entered.set()
        release.wait(20)
        return frame

    stream = Stream(range(30), wait)

    async def read():
        async for _ in stream:
            pass

    async def cancel():
        task = asyncio.create_task(read())
        await asyncio.to_thread(entered.wait)
        asyncio.get_running_loop().call_later(0.05, release.set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert stream.report.state in ("stopped", "finished")


def test_a_stage_that_cannot_open_is_named():
    class Model(Opened):
        name = "infer"

        def open(self):
            raise FileError("There is no folder 'mine'.")

        def __call__(self, items):
            return items

    with pytest.raises(StreamError, match="No worker is left: The stage 'infer' could not open: "
                       "There is no folder 'mine'"):  # fmt: skip
        Stream(range(10), Model()).run()


def test_a_stream_cannot_run_twice_at_once_but_again():
    stream = Stream(lambda: itertools.count(), double)
    results = iter(stream)
    next(results)
    with pytest.raises(StreamError, match="runs already"):
        stream.run()
    results.close()
    again = iter(stream)
    assert [next(again).index for _ in range(20)] == list(range(20))
    again.close()


@pytest.mark.parametrize(("options", "words"), [
    ({"engine": "dask"}, "engine='dask' is not known"), ({"workers": 0}, "workers=0"),
    ({"in_flight": None}, "in_flight=None"), ({"hedge": 0}, "hedge=0"),
    ({"timeout_s": -1}, "timeout_s=-1"), ({"window": 2.5}, r"window=2\.5"),
    ({"address": "auto"}, "add engine='ray'"),
])  # fmt: skip
def test_impossible_options_are_refused(options, words):
    with pytest.raises(StreamError, match=words):
        Stream([], double, **options)


def test_what_is_no_stage_or_decodes_in_the_middle_is_refused():
    with pytest.raises(StreamError, match="3 is no stage"):
        Stream([], 3)
    with pytest.raises(StreamError, match="stands first"):
        Stream([], double, Decode())


def test_ray_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"engine='ray' needs ray.*paifuser-lab\[cluster\]"):
        Stream(range(3), double, engine="ray").run()


def test_before_it_runs_a_stream_reports_that_it_waits_and_cannot_be_paused():
    stream = Stream(range(3), double)
    assert stream.report.state == "waiting"
    with pytest.raises(StreamError, match="has not begun"):
        stream.pause()
