"""What a pipeline's record tells of its measured passes."""

from __future__ import annotations

import pytest

from paifuser_lab.parallel.schedules import simulate
from paifuser_lab.records import PipelineSchedule

FORWARD, BACKWARD = (1.0, 1.0), (2.0, 2.0)


def record(transfer_ms=None, schedule="1f1b"):
    slots = () if transfer_ms is None else simulate(schedule, FORWARD, BACKWARD, 4, transfer_ms)
    return PipelineSchedule(
        workload="x",
        schedule=schedule,
        split="given",
        microbatches=4,
        stages=(),
        predicted=simulate(schedule, FORWARD, BACKWARD, 4),
        measured=slots,
    )


@pytest.mark.parametrize("transfer_ms", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_time_to_hand_over_is_what_passes_waited_after_those_before(schedule, transfer_ms):
    found = record(transfer_ms, schedule).hand_over_ms
    # Passes that waited for their own stage alone, as in a full pipeline, are left out.
    assert found == pytest.approx(transfer_ms)


def test_the_title_says_what_the_prediction_leaves_out():
    assert "4 ms to hand over, not in the prediction" in record(4.0).title
    assert record().hand_over_ms is None
    assert "hand over" not in record().title
