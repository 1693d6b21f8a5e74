"""The bench of predicted peaks: rows, ratios, failures and a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import memory_peak
from benchmarks.memory_peak import MemoryPeakBench, PeakRow, bench
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import PeakBytes, StepOptions
from paifuser_lab.records.predicted_peak import RESIDENT_MORE_BYTES, RESIDENT_RATIO

CALL = ((StepOptions(), 2),)


def test_models_are_predicted_and_measured_and_a_failure_is_recorded(tmp_path):
    measured = bench(("vit-s-tiny", "no-such-model"), settings=CALL, is_resident=False)
    assert "no-such-model" in measured.failures
    (row,) = measured.rows
    assert row.ratio == row.held.total_bytes / row.measured_bytes
    assert row.ratio == pytest.approx(1.0, abs=0.1)
    (shown,) = measured.table()
    assert shown["model"] == "vit-s-tiny" and shown["the process took, MB"] == "–"
    assert "1 of 1 within 10%" in measured.summary and "a process" not in measured.summary
    assert "no-such-model" in measured.summary
    assert MemoryPeakBench.load(measured.save(tmp_path / "bench.json")) == measured


def test_a_prediction_that_is_off_is_counted_as_off():
    row = PeakRow(
        model="net",
        options=StepOptions(train=True),
        batch=8,
        held=PeakBytes(weights_bytes=120),
        measured_bytes=100,
        resident_bytes=150,
    )
    measured = MemoryPeakBench(machine="a machine", threads=1, rows=(row,))
    assert measured.table()[0]["batch"] == "8, training"
    assert measured.summary.splitlines() == [
        "0 of 1 within 10% of what torch's allocator gave out; ratios from 1.200 to 1.200, median "
        "1.200",
        "a process of its own took 1.25 to 1.25 × for a step of training; 1 of 1 took at most "
        "1.42 × the prediction plus 100 MB",
    ]
    past = row.model_copy(update={"resident_bytes": 200_000_000})
    assert (
        not past.is_bounded
        and "; 0 of 1 took at most" in measured.model_copy(update={"rows": (past,)}).summary
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of resident bytes is read from /proc")
def test_a_process_of_its_own_takes_at_least_weights_and_inputs():
    count = memory_peak.resident_bytes("unet-tiny", StepOptions(), 64)
    inputs = 64 * 3 * 64 * 64 * 4
    assert inputs < count < 100 * inputs


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of resident bytes is read from /proc")
def test_a_process_that_fails_says_why():
    with pytest.raises(MeasureError, match=r"no-such-model failed in a process .*named"):
        memory_peak.resident_bytes("no-such-model", StepOptions(), 1)


def test_what_a_process_may_take_is_the_least_that_holds_for_every_measured_model():
    path = Path(__file__).parents[2] / "docs" / "measured" / "memory_peak.json"
    measured = MemoryPeakBench.load(path).rows
    rows = [(row.held.total_bytes, row.resident_bytes or 0) for row in measured]
    assert all(taken <= RESIDENT_RATIO * held + RESIDENT_MORE_BYTES for held, taken in rows)
    closest = [taken / (RESIDENT_RATIO * held + RESIDENT_MORE_BYTES) for held, taken in rows]
    assert max(closest) > 0.9, "not far above what was measured"
