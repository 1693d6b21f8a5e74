"""The bench of reading a snapshot: what is generated is what is read, and the file is deleted."""

from __future__ import annotations

import pickle
import tempfile

from benchmarks import memory_snapshot
from benchmarks.measured import Records
from benchmarks.memory_snapshot import SnapshotReading, bench, write_snapshot
from benchmarks.pages import block
from paifuser_lab.memory.snapshots import read_snapshot


def test_the_generated_file_is_a_snapshot_of_torch_s_kind(tmp_path):
    events = write_snapshot(tmp_path / "large.pickle", 1_500_000)
    assert (tmp_path / "large.pickle").stat().st_size >= 1_500_000
    snapshot = read_snapshot(tmp_path / "large.pickle")
    trace = snapshot.trace(0)
    assert len(trace) == events and len(snapshot.segments) == memory_snapshot.SEGMENTS
    plain = pickle.loads((tmp_path / "large.pickle").read_bytes())
    entries = list(plain["device_traces"][0])
    assert [entry["addr"] for entry in entries] == trace.address.tolist()
    assert [entry["time_us"] for entry in entries] == trace.time_us.tolist()
    for index in (0, 1, 2, events // 2, events - 1):
        frames = snapshot.stacks.frames_of(int(trace.stack[index]))
        assert [frame.function for frame in frames] == [
            frame["name"] for frame in entries[index]["frames"]
        ]
        assert len(frames) == memory_snapshot.DEPTH


def test_it_is_read_in_a_process_of_its_own_and_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measured = bench(gigabytes=0.002)
    assert measured.file_bytes >= 2_000_000 and measured.events > 1000
    assert measured.seconds > 0 and not list(tmp_path.iterdir())
    if measured.peak_bytes is not None:
        assert measured.peak_bytes >= measured.before_bytes > 0
    assert SnapshotReading.load(measured.save(tmp_path / "r.json")) == measured
    assert measured.table()[0]["events"] == f"{measured.events:,}"


def test_the_page_shows_time_and_memory(tmp_path):
    SnapshotReading(
        machine="here",
        file_bytes=10**9,
        events=4_500_000,
        seconds=21.4,
        analysed_seconds=3.2,
        cpu_seconds=25.0,
        peak_bytes=1_400_000_000,
    ).save(tmp_path / "memory_snapshot.json")
    shown = " ".join(block("memory_snapshot", Records(tmp_path)).split())
    assert shown.startswith("A generated snapshot of 1.00 GB with 4,500,000 events is read in 21 s")
    assert "1,400 MB resident" in shown
