"""The monitor of a stream shows its report and its frames, at most five times a second."""

from __future__ import annotations

import threading

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.records import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from paifuser_lab.streaming import Stream
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.sink import Watched
from paifuser_lab.streaming.stages import Preview
from paifuser_lab.widgets import StreamMonitor
from paifuser_lab.widgets.tabs.stream import MOST_EVENTS, pack
from tests.support.clips import pictures


def report(**more) -> StreamReport:
    spread = Latency(name="<b>decode", p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, count=9)
    return StreamReport(
        source="<img src=x>.mp4",
        engine="threads",
        state="running",
        frames=9,
        elapsed_s=1.5,
        latency=spread,
        stage_latency=(spread,),
        nodes=(StreamNode(name="thread-0", frames=9, share=1.0),),
        events=tuple(StreamEvent(at_s=at, kind="hedged") for at in range(MOST_EVENTS + 5)),
        failures=(SetAside(index=3, stage="infer", message="<script>"),),
        rates=((0.5, 4.0), (1.0, 8.0)),
        hedged=2,
        **more,
    )


def test_the_page_is_sent_the_figures_the_rates_and_the_latest_marks():
    data = pack(report())
    assert numpy.frombuffer(data["rates"], "<f4").tolist() == [4.0, 8.0]
    assert data["stages"] == [{"name": "<b>decode", "p50": 1.0, "p95": 2.0, "p99": 3.0}]
    assert len(data["events"]) == MOST_EVENTS and data["events"][-1]["at_s"] == MOST_EVENTS + 4
    assert data["counts"]["hedged"] == 2 and data["nodes"][0]["share"] == 1.0
    assert pack(StreamReport(source="a", engine="threads", state="waiting"))["latency"] == []


def test_a_report_has_a_widget_and_a_twin_whose_names_are_escaped(monkeypatch):
    panel = lab.show(report())
    assert isinstance(panel, StreamMonitor)
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    shown = panel._repr_mimebundle_()
    assert "image/png" in shown and "<img src=x" not in shown["text/html"]
    assert "has not begun" in StreamMonitor()._repr_mimebundle_()["text/html"]


def frames():
    return [Frame(image) for image in pictures(12)]


@pytest.mark.parametrize("way", ["watch", "run"])
def test_a_stream_is_shown_while_it_runs_five_times_a_second_at_most(way):
    now = [0.0]
    monitor = StreamMonitor(clock=lambda: now[0])
    shown = []
    monitor.observe(lambda change: shown.append(change["new"]), "data")
    taken = []
    permits = threading.Semaphore(11)  # the last frame waits until one was taken

    def wait(frame):
        assert permits.acquire(timeout=60)
        return frame

    def take(result):
        now[0] += 0.1
        permits.release()
        taken.append(result.index)

    stream = Stream(frames, wait, Preview(rate=1000, width=16), sink=take, workers=1)
    if way == "watch":
        for result in monitor.watch(stream):
            take(result)
    else:
        assert monitor.run(stream).frames == 12
    assert taken == list(range(12)) and stream.sink.function is take
    assert 3 <= len(shown) <= 9
    states = [each["state"] for each in shown]
    assert states[0] == "waiting" and "running" in states and states[-1] == "finished"
    assert shown[-1]["picture"][:2] == b"\xff\xd8" and shown[-1]["done"] == 12
    assert lab.show(stream).record.frames == 12


def test_a_stream_is_shown_while_no_result_comes(monkeypatch):
    monkeypatch.setattr("paifuser_lab.widgets.tabs.stream.IDLE_S", 0.01)
    monitor, shown, enough = StreamMonitor(), [], threading.Event()

    def see(change):
        shown.append(change["new"])
        if len(shown) == 4:
            enough.set()

    def wait(frame):
        assert enough.wait(60)
        return frame

    monitor.observe(see, "data")
    assert monitor.run(Stream([1], wait, workers=1)).frames == 1
    assert all(each["done"] == 0 for each in shown[:4]) and shown[-1]["done"] == 1


def test_a_stream_that_waits_says_for_what():
    assert pack(report(message="Waiting for a GPU."))["message"] == "Waiting for a GPU."


def test_a_stream_that_is_watched_is_the_same_to_its_journal():
    stream = Stream([1], abs)
    plain = stream.identity
    stream.sink = Watched(None, lambda results: None)
    assert stream.identity == plain


def test_a_stream_that_fails_is_shown_as_failed():
    monitor = StreamMonitor()

    def fails(result):
        raise OSError("full")

    stream = Stream(frames, Preview(), sink=fails, workers=1)
    with pytest.raises(lab.PaifuserError, match="full"):
        monitor.run(stream)
    assert monitor.record.state == "failed" and "full" in monitor.record.message
    assert stream.sink.function is fails
