"""`benchmarks peers`: which commands run, and what is said of those that do not."""

from __future__ import annotations

import pytest

from benchmarks import peers
from benchmarks.measured import COMMANDS
from benchmarks.peers import PEERS, bench
from paifuser_lab.errors import MeasureError


def test_each_bench_writes_its_record_and_one_that_fails_does_not_stop_the_others(
    monkeypatch, tmp_path
):
    ran = []

    def printed(what, words, *, limit_s):
        ran.append(words)
        assert 0 < limit_s <= 3600
        if what == "fuse":
            raise MeasureError("fuse failed in a process of its own.")

    monkeypatch.setattr(peers, "printed", printed)
    measured = bench(folder=tmp_path)
    assert [row.name for row in measured.rows] == [name for name in PEERS if name != "fuse"]
    assert measured.failures == {"fuse": "fuse failed in a process of its own."}
    files = [str(tmp_path / f"{name}.json") for name in PEERS]
    assert [words[-2:] for words in ran] == [["--json", file] for file in files]
    assert ran[0][:4] == ["-m", "paifuser_lab.cli", "bench", "models"]
    assert ran[1][:3] == ["-m", "benchmarks", "fuse"]
    assert [row["record"] for row in measured.table()] == [row.name for row in measured.rows]


def test_what_has_no_time_left_is_named(monkeypatch):
    monkeypatch.setattr(peers, "printed", lambda *given, **named: pytest.fail("it ran"))
    measured = bench(("search", "prune"), minutes=0)
    assert not measured.rows and [*measured.failures] == ["search", "prune"]
    assert {*PEERS} <= {*COMMANDS}
