"""What a pipeline's record tells of its measured passes."""

from __future__ import annotations

import pytest

from paifuser_lab.parallel.pipelines import with_explanation
from paifuser_lab.parallel.schedules import simulate
from paifuser_lab.records import PipelineSchedule, PipelineStageLayers

STAGE = PipelineStageLayers(first_layer="a", last_layer="b", forward_ms=1, backward_ms=2)
FORWARD, BACKWARD = (1.0, 1.0), (2.0, 2.0)


def record(transfer_ms=None, schedule="1f1b", **options):
    slots = () if transfer_ms is None else simulate(schedule, FORWARD, BACKWARD, 4, transfer_ms)
    return PipelineSchedule(
        workload="x",
        schedule=schedule,
        split="given",
        microbatches=4,
        stages=(STAGE,) * 2,
        predicted=simulate(schedule, FORWARD, BACKWARD, 4),
        measured=slots,
        **options,
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


def test_the_title_says_why_the_measured_bubble_is_larger():
    waited = record(4.0, cores=1, core_wait_ms=(5.0, 10.0))
    assert waited.core_wait_share == pytest.approx(15 / (2 * waited.measured_ms))
    assert "predicted with 1 of 2 stages computing at once" in waited.title
    assert f"waited for a core in {waited.core_wait_share:.0%} of the time" in waited.title
    explained = with_explanation(waited)
    assert explained.explained_bubble == pytest.approx(waited.measured_bubble)
    assert f"as measured, {waited.measured_bubble:.0%}" in explained.title
    assert record(4.0).core_wait_share is None
    assert with_explanation(record()).explained_bubble is None
