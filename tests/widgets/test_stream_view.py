"""The monitor of a stream shows its report and its frames, at most five times a second."""

from __future__ import annotations

import threading

import pytest

import paifuser_lab as lab
from paifuser_lab.records import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from paifuser_lab.streaming import Stream
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.sink import Watched
from paifuser_lab.streaming.stages import Preview
from paifuser_lab.views.stream import MOST_EVENTS, picture
from paifuser_lab.widgets import StreamMonitor
from paifuser_lab.widgets.wire import pictured
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


def test_a_picture_has_the_figures_the_rates_and_the_latest_marks():
    shown = picture(report())
    (rate,), (latency,) = shown.rows
    line, marks = rate.marks
    assert list(line.y) == [4.0, 8.0]
    assert len(marks.x) == MOST_EVENTS and marks.x[-1] == MOST_EVENTS + 4
    assert latency.y.names == ("<b>decode", "<b>decode")
    assert latency.marks[0].tips.text(0).endswith("1 p50\n2 p95\n3 p99")
    facts = {fact.name: (fact.value, fact.shape) for fact in shown.facts}
    assert facts["hedged"] == ("2", "up") and "hung" not in facts
    assert shown.tables[0].rows[0]["share"] == "100%"
    assert shown.items == (("frame 3", "infer: <script>"),)


def test_a_stream_that_waits_has_a_rate_and_no_latencies():
    shown = picture(StreamReport(source="a", engine="threads", state="waiting"))
    assert len(shown.rows) == 1 and not shown.tables and pictured(shown)["photo"] == b""


def test_a_report_has_a_widget_and_where_there_is_none_a_sentence_stands_in_its_place():
    assert isinstance(lab.show(report()), StreamMonitor)
    assert "has not begun" in StreamMonitor().twin()


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
    states = [each["spoken"]["news"].strip() for each in shown]
    assert states[0] == "waiting" and "running" in states and states[-1] == "finished"
    assert shown[-1]["photo"][:2] == b"\xff\xd8" and done(shown[-1]) == "12"
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
    assert {done(each) for each in shown[:4]} <= {"0", "0 of 1"} and done(shown[-1]) == "1 of 1"


def done(sent) -> str:
    return next(fact["value"] for fact in sent["facts"] if fact["name"] == "frames")


def test_what_is_spoken_says_how_far_it_is_or_for_what_it_waits():
    assert picture(report()).spoken.line == "running: 9 frames, 0 a second"
    known = picture(report(expected_frames=60, frames_per_s=20.04)).spoken
    assert known.line == "running: 9 of 60 frames, 20 a second"
    waits = picture(report(message="Waiting for a GPU.")).spoken
    assert waits.line == "running: Waiting for a GPU." and waits.news != known.news


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
