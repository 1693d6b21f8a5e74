"""Groups of a video decode, each alone, to the frames that the whole file has."""

from __future__ import annotations

import os
from dataclasses import replace

import av
import numpy as np
import pytest

from paifuser_lab.errors import FileError
from paifuser_lab.streaming import FrameError
from paifuser_lab.streaming.sources import VideoFile
from paifuser_lab.streaming.stages import Decode
from tests.support.clips import OPEN, clip, sound


def sequential(path):
    with av.open(str(path)) as container:
        return [
            (frame.pts * frame.time_base, frame.to_ndarray(format="rgb24"))
            for frame in container.decode(video=0)
        ]


def decoded(source, order=None):
    """The frames of every group, each decoded alone, in this order of groups."""
    groups = list(source.groups())
    found = {}
    for sequence in order or range(len(groups)):
        frames = Decode()(groups[sequence].payload)
        assert len(frames) == groups[sequence].count
        found |= {groups[sequence].first + at: frame for at, frame in enumerate(frames)}
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
@pytest.mark.parametrize("options", [None, OPEN], ids=["closed groups", "open groups"])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_groups_that_are_decoded_alone_and_in_any_order_equal_the_file_decoded_in_turn(
    tmp_path, suffix, options, size
):
    path = clip(tmp_path / f"a{suffix}", 30, options=options)
    source = VideoFile(path, group_frames=size)
    count = len(list(source.groups()))
    frames = decoded(source, [*range(count)][::-1])
    expected = sequential(path)
    assert [frame.time * frame.time_base for frame in frames] == [time for time, _ in expected]
    for frame, (_, image) in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(frame.image, image)
    assert not source.notes and max(group.count for group in source.groups()) <= size
    sent = [len(group.payload.packets) for group in source.groups()]
    if size == 64 and options is None:
        assert sent == [30]  # small groups of pictures travel together


def test_a_group_that_is_asked_for_again_is_the_same(tmp_path):
    source = VideoFile(clip(tmp_path / "a.mp4", 30, options=OPEN), group_frames=7)
    whole = list(source.groups())
    assert list(source.groups(3)) == whole[3:]
    assert [group.first for group in whole] == [
        sum(other.count for other in whole[:at]) for at in range(len(whole))
    ]


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_rotated_video_is_turned_upright(tmp_path, rotation):
    path = clip(tmp_path / "a.mp4", 3, rotation=rotation)
    source = VideoFile(path)
    assert (source.width, source.height) == ((48, 64) if rotation != 180 else (64, 48))
    for frame, (_, image) in zip(decoded(source), sequential(path), strict=True):
        np.testing.assert_array_equal(frame.image, np.rot90(image, rotation // 90))


def test_frames_at_a_variable_rate_keep_their_times(tmp_path):
    times = [0, 10, 15, 100, 101, 400, 450, 451, 460, 1000]
    source = VideoFile(clip(tmp_path / "a.mp4", 10, times=times))
    assert [round(1000 * frame.seconds) for frame in decoded(source)] == times


def test_frames_that_are_decoded_by_the_source_are_the_same(tmp_path):
    path = clip(tmp_path / "a.mp4", 12)
    sent = [f for group in VideoFile(path, encoded=False).groups() for f in group.payload]
    for frame, other in zip(sent, decoded(VideoFile(path)), strict=True):
        np.testing.assert_array_equal(frame.image, other.image)
        assert (frame.time, frame.time_base) == (other.time, other.time_base)


def test_a_file_that_was_cut_short_is_read_up_to_there_with_a_note(tmp_path):
    whole = clip(tmp_path / "a.mkv", 60, options={"preset": "ultrafast", "g": "10"})
    content = whole.read_bytes()
    (tmp_path / "b.mkv").write_bytes(content[: len(content) // 2])
    frames = decoded(VideoFile(tmp_path / "b.mkv"))
    good = [frame for frame in frames if not isinstance(frame, FrameError)]
    assert 10 < len(good) < 60
    source = VideoFile(tmp_path / "b.mkv")
    source.seconds = 9.0  # this muxer's header has no duration
    list(source.groups())
    assert source.notes[-1].startswith("b.mkv declares 9.0 s, and its frames end at")
    for frame, (_, image) in zip(good[:10], sequential(whole)[:10], strict=True):
        np.testing.assert_array_equal(frame.image, image)
    path = clip(tmp_path / "c.mp4", 20)
    source = VideoFile(path)
    source.frames = 25
    list(source.groups())
    assert source.notes == ["c.mp4 declares 25 frames and has 20: it was cut short."]


def test_a_damaged_packet_costs_its_frames_and_not_the_others(tmp_path):
    source = VideoFile(clip(tmp_path / "a.mp4", 10), group_frames=5)
    first, second = source.groups()
    packets = first.payload.packets
    broken = (packets[0], *(b"\0" * 40 for _ in packets[1:]))
    frames = Decode()(replace(first.payload, packets=broken))
    assert len(frames) == 5 and isinstance(frames[-1], FrameError)
    assert not any(isinstance(frame, FrameError) for frame in Decode()(second.payload))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: sound(path), "has no video, only audio; give a file with pictures"),
        (lambda path: path.write_bytes(b""), "is empty; give a video file"),
        (lambda path: path.write_bytes(b"no video" * 99), "Cannot read a.mp4 as a video"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: None, "Cannot read .*a.mp4: No such file"),
        (lambda path: path.write_bytes(clip(path).read_bytes()[:900]), "is it one, and complete"),
    ],
    ids=["sound", "empty", "text", "folder", "missing", "cut in its head"],
)
def test_what_is_no_video_is_refused_with_a_sentence(tmp_path, make, sentence):
    path = tmp_path / "a.mp4"
    make(path)
    with pytest.raises(FileError, match=sentence):
        VideoFile(path)


@pytest.mark.parametrize(
    ("suffix", "codec", "options", "note"),
    [
        # packets of AVI have no time of showing, and B-frames are shown in another order
        (".avi", "libx264", {"g": "9", "bf": "2"}, "AVI does not say when"),
        (".mp4", "mpeg4", {"g": "7", "bf": "2"}, "its codec is mpeg4"),
        (".mkv", "libx264", {"g": "9", "x264-params": "intra-refresh=1"}, "are not whole pictures"),
        (".webm", "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8", "g": "9"}, ""),
        (".mp4", "libsvtav1", {"preset": "12"}, ""),
    ],
)
def test_a_file_whose_parts_do_not_decode_alone_is_decoded_in_one_place(
    tmp_path, suffix, codec, options, note
):
    if codec not in av.codecs_available:
        pytest.skip(f"this PyAV has no {codec}")
    path = clip(tmp_path / f"a{suffix}", 24, codec=codec, options=options)
    if hasattr(os, "sched_getscheduler"):
        assert os.sched_getscheduler(0) == os.SCHED_OTHER, "see tests.support.clips.own_schedule"
    source = VideoFile(path, group_frames=7)
    with av.open(str(path)) as container:
        expected = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    for frame, image in zip(decoded(source), expected, strict=True):
        np.testing.assert_array_equal(frame.image, image)
    assert source.encoded == (not note)
    assert len(source.notes) == bool(note)
    assert all(note in each and "in one place" in each for each in source.notes)


def test_a_video_without_keyframes_is_refused_unless_it_is_decoded_in_one_place(
    tmp_path, monkeypatch
):
    path = clip(tmp_path / "a.mp4", 30, options={"preset": "ultrafast", "g": "250", "bf": "0"})
    monkeypatch.setattr("paifuser_lab.streaming.sources.video.LONGEST", 20)
    with pytest.raises(FileError, match="no keyframe within 20 frames"):
        list(VideoFile(path).groups())
    assert sum(group.count for group in VideoFile(path, encoded=False).groups()) == 30
