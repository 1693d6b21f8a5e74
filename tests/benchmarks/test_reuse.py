"""The bench of the step `reuse`: its rows, its table, its page."""

from __future__ import annotations

from benchmarks import memory
from benchmarks.measured import Records
from benchmarks.pages import block
from benchmarks.reuse import ReuseBench, bench


def test_each_model_and_batch_is_measured_and_a_failure_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "ROUNDS", 2)
    measured = bench(("resnet18-tiny", "nothing"), batches=(2,), seconds=0.05)
    assert list(measured.failures) == ["nothing, batch 2"]
    (row,) = measured.rows
    assert row.with_buffers < row.without_buffers and row.with_bytes <= row.without_bytes
    assert "activations" in row.note and "sums" in row.note and row.without_ms > 0
    assert ReuseBench.load(measured.save(tmp_path / "reuse.json")) == measured
    assert measured.table()[0]["in place"] == row.note
    lower = int(row.with_bytes < row.without_bytes)
    assert measured.summary.startswith(f"{lower} of 1 have a lower peak")
    assert f"| resnet18-tiny | 2 | {row.note} |" in block("reuse", Records(tmp_path))


def test_nothing_measured_is_no_table():
    empty = ReuseBench(machine="here", threads=1, rows=())
    assert empty.table() == [{"model": "nothing was measured"}] and empty.summary == ""
