"""A stream that was killed goes on behind the last group that its sink has taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from paifuser_lab.errors import StreamError
from paifuser_lab.streaming import FrameError, Items, Result, Stream
from paifuser_lab.streaming.journal import Journal, Position


class Lines:
    """A file with a line a frame; the token is its length, and what is behind it is cut off."""

    name, is_resumable = "lines", True

    def __init__(self, path):
        self.path = path

    def open(self, token):
        self.file = self.path.open("ab")
        self.file.truncate(int(token or 0))

    def write(self, results):
        self.file.write("".join(f"{result.index} {result.value}\n" for result in results).encode())
        self.file.flush()
        return str(self.file.tell())

    def close(self):
        self.file.close()

    abort = close


def stream_of(folder, frames, stage):
    return Stream(
        Items(frames, group=4), stage, sink=Lines(folder / "lines"), journal=folder / "journal"
    )


def square(frame):
    return frame**2


CHILD = """
import os, signal, sys
from pathlib import Path
from tests.streaming.test_journal import Lines, square, stream_of

class Dying(Lines):
    def write(self, results):
        token = super().write(results)
        if results[0].index >= 40:   # after the sink took the group, before it is committed
            os.kill(os.getpid(), signal.SIGKILL)
        return token

stream = stream_of(Path(sys.argv[1]), range(100), square)
stream.sink = Dying(Path(sys.argv[1]) / "lines")
stream.run()
"""


def test_a_killed_driver_resumes_and_each_frame_is_in_the_output_once(tmp_path):
    killed = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    written = (tmp_path / "lines").read_text().splitlines()
    assert len(written) == 44  # the last four are in the file, and not committed
    report = stream_of(tmp_path, range(100), square).run()
    expected = [f"{index} {index**2}" for index in range(100)]
    assert (tmp_path / "lines").read_text().splitlines() == expected
    assert (report.resumed_at, report.frames) == (40, 60)
    again = stream_of(tmp_path, range(100), square).run()
    assert (again.state, again.frames) == ("finished", 0)
    assert (tmp_path / "lines").read_text().splitlines() == expected


def test_an_interrupted_iteration_goes_on_behind_the_group_that_was_read(tmp_path):
    make = lambda: Stream(Items(range(20), group=4), square, journal=tmp_path / "journal")
    seen = []
    for result in make():
        seen.append(result.index)
        if result.index == 9:  # in the middle of the third group, which is not committed
            break
    seen = seen[:8] + [result.index for result in make()]
    assert seen == list(range(20))


def test_a_journal_is_refused_to_another_stream_and_while_it_is_in_use(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, "camera → infer")
    with pytest.raises(StreamError, match="is in use or cannot be written"):
        Journal(path, "camera → infer")
    journal.commit([Result(0, "", 1.0), Result(1, None, 1.0, error=FrameError("infer", ""))], None)
    journal.commit([Result(2, "", 1.0)], "token")
    journal.close()
    with pytest.raises(StreamError, match=r"belongs to another stream \(camera → infer\)"):
        Journal(path, "clip → infer")
    again = Journal(path, "camera → infer")
    assert again.position == Position(2, 3, 1, "token")
    again.close()


def test_a_file_that_is_no_journal_or_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(StreamError, match="is not a stream's journal"):
        Journal(tmp_path / "text", "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamError, match="cannot be opened"):
        Journal(tmp_path / "file" / "journal", "a")


def test_a_source_that_has_changed_since_is_refused(tmp_path):
    list(Stream(Items(range(8), group=4), square, journal=tmp_path / "journal"))
    changed = Stream(Items(range(30), group=5), square, journal=tmp_path / "journal")
    with pytest.raises(StreamError, match="now has frame 10 where 8 was expected"):
        list(changed)


def test_a_source_or_a_sink_that_cannot_go_on_has_no_journal(tmp_path):
    with pytest.raises(StreamError, match="cannot be read a second time"):
        Stream(iter(range(3)), square, journal=tmp_path / "journal")
    sink = Lines(tmp_path / "lines")
    sink.is_resumable = False
    with pytest.raises(StreamError, match="The sink 'lines' cannot go on"):
        Stream(range(3), square, sink=sink, journal=tmp_path / "journal")
    assert os.listdir(tmp_path) == []
