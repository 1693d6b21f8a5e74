"""Sinks write every frame at its time, or nothing at all."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pyarrow.parquet
import pytest

from paifuser_lab.errors import FileError, StreamError
from paifuser_lab.streaming import FrameError, Result, Stream
from paifuser_lab.streaming.frame import Frame
from paifuser_lab.streaming.sinks import ParquetSink, VideoSink
from paifuser_lab.streaming.sources import VideoFile
from paifuser_lab.streaming.stages import Decode, Encode, encode
from paifuser_lab.streaming.stages.answer import Classes
from tests.support.clips import clip, pictures

TIMES = [0, 10, 15, 100, 101, 400, 450, 451, 460, 1000]


def results(count=10, width=64, height=48):
    frames = [
        Frame(image, TIMES[index], Fraction(1, 1000))
        for index, image in enumerate(pictures(count, width, height))
    ]
    return [Result(index, frame, 1.0) for index, frame in enumerate(frames)]


def times_of(path):
    with av.open(str(path)) as container:
        return [round(float(frame.time) * 1000) for frame in container.decode(video=0)]


def encoded(group):
    frames = iter(Encode()([result.value for result in group if result.error is None]))
    return [
        replace(result, value=next(frames)) if result.error is None else result for result in group
    ]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_a_video_has_every_frame_at_its_time_and_looks_like_it(
    tmp_path, suffix, codec, capfd, monkeypatch
):
    monkeypatch.setattr(encode, "PREFERRED", (codec,))
    path = tmp_path / f"out{suffix}"
    sink = VideoSink(path)
    sink.open(None)
    whole = results()
    for group in (whole[:4], whole[4:9], whole[9:]):
        sink.write(encoded(group))
    assert not path.exists()
    sink.close()
    assert (
        times_of(path) == TIMES
        and not capfd.readouterr().err
        and [p.name for p in tmp_path.iterdir()] == [path.name]
    )
    with av.open(str(path)) as container:
        for frame, result in zip(container.decode(video=0), whole, strict=True):
            error = np.abs(frame.to_ndarray(format="rgb24") - result.value.image.astype(float))
            assert error.mean() < 60  # noise, compressed, at a quarter of the colours


def test_a_frame_set_aside_leaves_a_gap_and_odd_sides_become_even(tmp_path):
    rows = results(width=63, height=47)
    rows[3] = Result(3, None, 1.0, error=FrameError("infer", "no"))
    sink = VideoSink(tmp_path / "out.mp4")
    sink.open(None)
    sink.write(encoded(rows))
    sink.close()
    assert times_of(tmp_path / "out.mp4") == [time for time in TIMES if time != 100]
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.streams.video[0].width == 64


def test_a_stream_writes_a_video_that_an_earlier_one_keeps_until_it_is_whole(tmp_path):
    source = clip(tmp_path / "in.mp4", 20)
    out = tmp_path / "out.mp4"
    out.write_bytes(b"earlier")

    def stage(frame):
        assert out.read_bytes() == b"earlier"
        return frame

    stages = (Decode(), stage, Encode(rate=25))
    report = Stream(VideoFile(source), *stages, sink=VideoSink(out), workers=2).run()
    assert (report.frames, report.set_aside) == (20, 0)
    assert times_of(out) == [40 * index for index in range(20)]


class Full:
    """A writer on a full disk."""

    def __init__(self, error):
        self.error = error

    def mux(self, packet):
        raise self.error

    write_table = mux

    def close(self):
        raise self.error


@pytest.mark.parametrize("make", [VideoSink, ParquetSink])
def test_a_full_disk_is_one_sentence_and_leaves_no_part(tmp_path, make):
    sink = make(tmp_path / ("out.mp4" if make is VideoSink else "out.parquet"))
    sink.open(None)
    sink.write(encoded(results()[:2]))
    if isinstance(sink, VideoSink):
        sink._container = Full(av.error.FFmpegError(errno.ENOSPC, "No space left on device"))
    else:
        sink._rows = [{"index": 0}]
        sink._writer.close()
        sink._writer = Full(OSError(errno.ENOSPC, "No space left on device"))
    act = (
        sink.close if isinstance(sink, ParquetSink) else lambda: sink.write(encoded(results()[2:5]))
    )
    with pytest.raises(FileError, match=r"Cannot write out\..* into .*free some space"):
        act()
    sink.abort()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [VideoSink, ParquetSink])
def test_what_was_begun_is_gone_when_the_stream_fails(tmp_path, make):
    sink = make(tmp_path / ("out.mp4" if make is VideoSink else "out.parquet"))
    sink.open(None)
    assert list(tmp_path.iterdir())
    sink.abort()
    sink.abort()
    assert not list(tmp_path.iterdir())


def test_a_video_refuses_what_it_cannot_hold(tmp_path):
    sink = VideoSink(tmp_path / "out.mp4")
    sink.open(None)
    with pytest.raises(StreamError, match="takes encoded frames; let Encode be the last"):
        sink.write(results()[:1])
    sink.write(encoded(results()[:3]))
    with pytest.raises(StreamError, match="the times of a video's frames rise"):
        sink.write(encoded(results()[:1]))
    sink.abort()
    sink.open(None)
    with pytest.raises(StreamError, match="No frame came"):
        sink.close()
    sink.open(None)
    sink.write([Result(0, None, 1.0, error=FrameError("infer", "It is too dark."))])
    with pytest.raises(StreamError, match="set aside, the last by infer: It is too dark; there"):
        sink.close()
    assert not list(tmp_path.iterdir())
    small = Encode()([Frame(pictures(1, 32, 32)[0], 40)])[0]
    sink.open(None)
    sink.write([Result(0, Encode()([Frame(pictures(1)[0])])[0], 1.0)])
    with pytest.raises(StreamError, match="frames of 64×48 and of 32×32"):
        sink.write([Result(1, small, 1.0)])
    with pytest.raises(FileError, match="no video's name"):
        VideoSink(tmp_path / "out.txt")


def test_a_table_has_a_row_a_frame_with_its_answer_or_error(tmp_path):
    answer = Classes(np.array([1]), np.float32([0.5]), ("cat", "dog"))
    rows = [
        Result(0, Frame(None, 40, name="a.png", answer=answer), 2.5),
        Result(1, None, 1.0, error=FrameError("infer", "no")),
        Result(2, {"count": 3}, 1.0),
    ]
    sink = ParquetSink(tmp_path / "out.parquet")
    sink.open(None)
    sink.write(rows)
    sink.close()
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["index"] for row in table] == [0, 1, 2]
    assert json.loads(table[0]["answer"]) == {"classes": [{"label": "dog", "score": 0.5}]}
    assert (table[0]["seconds"], table[0]["name"]) == (0.04, "a.png")
    assert table[1]["error"] == "infer: no" and json.loads(table[2]["answer"]) == {"count": 3}
    sink.open(None)
    with pytest.raises(StreamError, match="frame 7 cannot be written"):
        sink.write([Result(7, object(), 1.0)])
    sink.abort()
