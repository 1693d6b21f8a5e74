"""Plans of a training: formats within a budget of loss, checkpoints within a memory limit."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.planner.training import plan_checkpoints, plan_training_formats
from paifuser_lab.planner.training.checkpoints import cheapest
from paifuser_lab.planner.training.formats import Ranges, _chosen, _options
from paifuser_lab.records import CheckpointedBlock
from paifuser_lab.records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH

pytestmark = pytest.mark.usefixtures("one_thread")
BLOCK = st.tuples(st.integers(1, 40), st.integers(0, 10), st.integers(1, 9))


def rows(blocks) -> list[CheckpointedBlock]:
    return [
        CheckpointedBlock(block=str(index), kept_bytes=kept, input_bytes=inputs, ms=ms)
        for index, (kept, inputs, ms) in enumerate(blocks)
    ]


def peak_of(blocks, plain, chosen) -> int:
    again = [blocks[index] for index in chosen]
    largest = max((kept for kept, _, _ in again), default=0)
    return plain - sum(kept - inputs for kept, inputs, _ in again) + largest


@given(st.lists(BLOCK, min_size=1, max_size=6), st.integers(0, 250))
@settings(max_examples=60, deadline=None)
def test_the_program_finds_the_blocks_that_take_least_time(blocks, limit):
    plain = 20 + sum(kept for kept, _, _ in blocks)
    choices = [
        tuple(index for index, is_in in enumerate(flags) if is_in)
        for flags in product((False, True), repeat=len(blocks))
    ]
    fitting = [chosen for chosen in choices if peak_of(blocks, plain, chosen) <= limit]
    chosen = cheapest(rows(blocks), plain, limit)
    if not fitting:
        assert chosen is None
        return
    assert chosen is not None and peak_of(blocks, plain, chosen) <= limit

    def ms(indices):
        return sum(blocks[index][2] for index in indices)

    assert ms(chosen) == min(map(ms, fitting))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def stack() -> lab.Workload:
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer() for _ in range(4)], nn.Linear(32, 3))
    data = [(torch.randn(64, 32), torch.arange(64) % 3) for _ in range(3)]
    return lab.Workload(model, data[0][0], name="stack", loss=F.cross_entropy, train=data)


def test_checkpoints_keep_the_measured_peak_near_the_predicted_one_and_within_the_limit():
    subject = stack()
    whole = lab.fits(subject, train=True, limit="1 GB", batch=64).predicted.peak_bytes
    limit = int(0.9 * whole)
    plan = plan_checkpoints(subject, limit)
    assert plan.plain_bytes == whole > limit >= plan.predicted_bytes
    assert plan.is_within and 0 < len(plan.layers) <= 4
    assert plan.measured_bytes == pytest.approx(plan.predicted_bytes, rel=0.1)
    assert plan.measured_plain_bytes == pytest.approx(plan.plain_bytes, rel=0.1)
    assert plan.measured_bytes < plan.measured_plain_bytes
    plain = lab.train(stack(), epochs=1)
    assert lab.train(stack(), epochs=1, checkpointed=plan.layers).losses == plain.losses
    assert "checkpointed" in str(plan) and "<table" in plan._repr_html_()


def test_a_limit_that_is_met_needs_no_checkpoint_and_one_that_cannot_be_takes_all():
    subject = stack()
    assert plan_checkpoints(subject, "1 GB", measured=False).layers == ()
    tight = plan_checkpoints(subject, 1000, measured=False)
    assert len(tight.layers) == 4 and not tight.is_within and not tight.is_proven


def test_a_model_without_blocks_is_refused():
    model = nn.Sequential(nn.Linear(4, 3))
    data = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))]
    subject = lab.Workload(model, data[0][0], loss=F.cross_entropy, train=data)
    with pytest.raises(MeasureError, match="has no repeated blocks to checkpoint"):
        plan_checkpoints(subject, "1 GB")


MS = {"a": {"fp32": 4.0, "bf16": 2.0, "fp16": 1.0}, "b": {"fp32": 4.0, "bf16": 1.0, "fp16": 0.9}}
RISES = {"a": {"bf16": 0.1, "fp16": 0.01}, "b": {"bf16": 0.2, "fp16": 0.02}}


def test_the_fastest_formats_within_the_budget_are_chosen():
    assert _chosen(MS, RISES, {}, 1.0) == {"a": "fp16", "b": "fp16"}
    assert _chosen(MS, RISES, {"a": "", "b": ""}, 1.0) == {"a": "bf16", "b": "bf16"}
    assert _chosen(MS, RISES, {"a": "", "b": ""}, 0.25) == {"b": "bf16"}
    assert _chosen(MS, RISES, {"b": ""}, 0.05) == {"a": "fp16"}
    assert _chosen(MS, RISES, {}, 0.0) == {}


def test_the_format_of_most_layers_is_the_default_as_of_autocast():
    assert _options({"a": "bf16", "b": "bf16"}, ["a", "b"]) == ("bf16", {})
    assert _options({"a": "bf16"}, ["a", "b"]) == ("fp32", {"a": "bf16"})
    assert _options({"a": "bf16", "b": "bf16"}, ["a", "b", "c"]) == ("bf16", {"c": "fp32"})
    assert _options({"a": "bf16", "b": "fp16"}, ["a", "b"])[0] == "fp32"
    assert _options({}, ["a"]) == ("fp32", {})


def counts(**by_exponent: int) -> list[int]:
    values = [0] * (RANGE_BINS + 1)
    for name, count in by_exponent.items():
        exponent = int(name.removeprefix("e").replace("m", "-"))
        values[1 + (exponent - LOWEST_EXPONENT) // RANGE_WIDTH] = count
    return values


def test_a_layer_whose_gradient_is_far_below_the_largest_is_lost_in_fp16():
    ranges = Ranges({"top": counts(e0=9), "low": counts(em36=1, em10=3), "none": [5] + [0] * 24})
    # the largest lies below 2^2, so that 2^13 brings it to fp16's top
    assert ranges.scale_power == 13
    assert ranges.ends("top") == (0, 2) and ranges.ends("none") is None
    assert ranges.lost_share("top") == 0 and ranges.lost_share("none") == 0
    assert ranges.lost_share("low") == 0.25


def test_formats_of_a_training_stay_within_the_budget_and_can_be_trained_in():
    subject = stack()
    plan = plan_training_formats(subject, seconds=0.5, budget=1e9)
    assert plan.predicted_rise <= plan.budget and len(plan.rows) == 9
    assert all(row.ms[row.format] <= row.ms["fp32"] for row in plan.rows)
    assert all(set(row.rises) == {"bf16", "fp16"} for row in plan.rows)
    record = lab.train(subject, epochs=1, precision=plan.default, formats=plan.formats)
    assert len(record.losses) == 3 and "lower precision" in str(plan)


def test_a_format_that_cannot_be_trained_in_is_refused():
    with pytest.raises(MeasureError, match="'int8' is no format to train in"):
        plan_training_formats(stack(), formats=("int8",))
