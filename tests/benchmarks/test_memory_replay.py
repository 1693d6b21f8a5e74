"""The bench of replayed snapshots: peaks, growth while recorded, files that cannot be read."""

from __future__ import annotations

from benchmarks.measured import Records
from benchmarks.memory_replay import ReplayBench, bench
from benchmarks.pages import block
from tests.support.snapshots import dump, recorded


def test_snapshots_are_replayed_and_those_recorded_late_are_told_apart(tmp_path):
    content = recorded(3, steps=150).snapshot()
    whole = dump(content, tmp_path / "whole.pickle")
    events = content["device_traces"][0]
    last = max(at for at, event in enumerate(events) if event["action"].startswith("segment"))
    late = dump({**content, "device_traces": [events[last + 1 :]]}, tmp_path / "late.pickle")
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"none")
    measured = bench([whole, late, broken])
    first, second = measured.rows
    assert first.ratio == 1 and first.has_growth and not second.has_growth
    one, other, failure = measured.summary.splitlines()
    assert "1 of 1 equal" in one and other.startswith("recorded after all segments were taken")
    assert "broken.pickle" in failure and len(measured.table()) == 2
    assert ReplayBench.load(measured.save(tmp_path / "memory_replay.json")) == measured
    shown = " ".join(block("memory_replay", Records(tmp_path)).split())
    assert (
        shown.startswith("**By recordings.** 2 public snapshots") and "cannot be replayed" in shown
    )
