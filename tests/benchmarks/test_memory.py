"""The bench of memory pools: its rows, its table, its page."""

from __future__ import annotations

import pytest

from benchmarks import memory
from benchmarks.measured import Records
from benchmarks.memory import MemoryBench, PoolRow, bench
from benchmarks.pages import block
from paifuser_lab.memory.pools import heap_obstacle
from paifuser_lab.records import Quality

ROW = PoolRow(
    model="mobilenetv2",
    batch=8,
    is_training=False,
    without_ms=340.0,
    with_ms=200.0,
    ratio=1.7,
    interval=(1.6, 1.8),
    cpu_ratio=1.7,
    rounds=30,
    without_faults=45000.0,
    with_faults=0.0,
    tensors_bytes=90_000_000,
    without_bytes=100_000_000,
    with_bytes=None,
    quality=Quality(others_share=0.5),
)


@pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())
def test_each_model_and_batch_is_measured_in_inference_and_training(monkeypatch):
    monkeypatch.setattr(memory, "ROUNDS", 2)
    measured = bench(("resnet18-tiny", "nothing"), batches=(1, 2), trained=(2,), seconds=0.05)
    assert list(measured.failures)[1:] == ["nothing, batch 2", "nothing, batch 2, training"]
    assert [(row.batch, row.kind) for row in measured.rows] == [
        (1, "inference"),
        (2, "inference"),
        (2, "training"),
    ]
    assert all(row.with_ms > 0 and row.without_faults is not None for row in measured.rows)
    assert measured.rows[2].tensors_bytes > measured.rows[1].tensors_bytes > 0, "gradients, too"
    assert all(row.without_bytes is not None for row in measured.rows)


def test_the_table_and_the_summary_say_what_helped_and_what_was_busy():
    measured = MemoryBench(
        machine="here", threads=1, rows=(ROW, ROW.model_copy(update={"interval": (0.9, 1.1)}))
    )
    assert measured.table()[0] == {
        "model": "mobilenetv2",
        "batch": "8, inference",
        "ms": "340 → 200",
        "×": "1.70 (1.60–1.80)",
        "page faults a call": "45,000 → 0",
        "resident in a call, MB": "100 → –",
    }
    assert measured.summary == ("1 of 2 are faster with a pool; 2 were measured on a busy machine.")
    assert "here, one thread" in measured.title


def test_the_page_shows_the_record(tmp_path):
    MemoryBench(machine="here", threads=1, rows=(ROW,)).save(tmp_path / "memory.json")
    shown = " ".join(block("memory", Records(tmp_path)).split())
    assert "1 of 1 are faster with it. 1 of them were measured on a busy machine." in shown
    assert (
        "| mobilenetv2 | 8, inference | 340 → 200 | 1.70 (1.60–1.80) | 45,000 → 0 | 100 → – |"
        in shown
    )
