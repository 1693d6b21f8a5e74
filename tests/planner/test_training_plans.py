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
from paifuser_lab.measure import Samples
from paifuser_lab.planner.training import checkpoints as checkpoint_plans
from paifuser_lab.planner.training import formats as planning
from paifuser_lab.planner.training import plan_checkpoints, plan_training_formats
from paifuser_lab.planner.training.checkpoints import cheapest
from paifuser_lab.planner.training.formats import (
    BY_LAYER,
    FP32,
    Way,
    _best,
    _chosen,
    _default,
    _ways,
)
from paifuser_lab.planner.training.measured import Ranges, raced_steps
from paifuser_lab.records import (
    CheckpointedBlock,
    CheckpointPlan,
    StepOptions,
    TrainingFormats,
    TrainingStepTime,
)
from paifuser_lab.records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH
from paifuser_lab.training import TrainPlan
from paifuser_lab.workload.data import Batch

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


def test_a_block_that_takes_seconds_again_is_written_without_an_exponent():
    plan = CheckpointPlan(
        workload="stack",
        machine="here",
        limit_bytes=600,
        plain_bytes=1000,
        predicted_bytes=590,
        blocks=tuple(rows([(40, 10, 1234.5)])),
    )
    assert plan.table()[0]["ms again"] == "1230"


def test_the_room_that_the_program_leaves_under_the_limit_is_used(monkeypatch):
    """The program adds the largest block to every peak; the real one is lower."""
    blocks = rows([(30, 0, 5), (30, 0, 4), (30, 0, 3)])
    real = {0: 100, 1: 75, 2: 60, 3: 50}
    monkeypatch.setattr(
        checkpoint_plans, "_predicted", lambda work, step, layers: real[len(layers)]
    )

    def within(plain, allowed):
        return checkpoint_plans._Problem(None, None, blocks, allowed).solved(plain)

    assert len(cheapest(blocks, 100, 75)) == 2  # 100 − 60 + 30
    assert within(100, 75) == (("2",), 75, True)
    assert within(100, 74) == (("1", "2"), 60, True)
    assert within(100, 100) == ((), 100, True)
    names, peak, is_proven = within(100, 40)
    assert len(names) == 3 and not is_proven and peak == 50


def test_whole_steps_are_timed_with_the_plan_in_force(monkeypatch):
    asked = []

    def raced(work, batches, plans, seconds):
        asked.append({name: plan.checkpointed for name, plan in plans.items()})
        return {"plain": Samples([2.0, 2.0]), "checkpointed": Samples([3.0, 3.0])}

    monkeypatch.setattr(checkpoint_plans, "raced_steps", raced)
    subject, step = stack(), StepOptions(train=True)
    longer, interval = checkpoint_plans._longer(subject, step, ("0", "2"))
    assert longer == pytest.approx(1.5) and interval == pytest.approx((1.5, 1.5))
    assert asked == [{"plain": (), "checkpointed": ("0", "2")}]
    assert checkpoint_plans._longer(subject, step, ()) == (None, None)


def test_raced_steps_compute_as_their_plan_says_and_change_no_weight():
    subject, seen = stack(), set()
    subject.model.eval()
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}

    class Noting(nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            seen.add((output.dtype, torch.is_grad_enabled()))
            return output

    subject.model[4].__class__ = Noting
    plans = {
        "plain": TrainPlan(),
        "layer": TrainPlan.model_validate({"formats": {"4": "bf16"}}),
    }
    batch = Batch(subject.inputs, subject.train[0][1])
    for name, plan in plans.items():
        seen.clear()
        samples = raced_steps(subject, [batch], {name: plan}, 0.01)
        assert seen == {(torch.bfloat16 if name == "layer" else torch.float32, True)}
        assert samples[name].median_ms > 0
    seen.clear()
    again = raced_steps(subject, [batch], plans, 0.01)
    assert seen == {(torch.bfloat16, True), (torch.float32, True)}
    assert list(again) == list(plans) and "forward" not in vars(subject.model[4])
    assert not subject.model.training
    after = subject.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_limit_that_is_met_needs_no_checkpoint_and_one_that_cannot_be_takes_all():
    subject = stack()
    assert plan_checkpoints(subject, "1 GB", measured=False).layers == ()
    tight = plan_checkpoints(subject, 1000, measured=False)
    assert len(tight.layers) == 4 and not tight.is_within and not tight.is_proven


def test_a_model_without_blocks_is_refused_where_it_does_not_fit():
    model = nn.Sequential(nn.Linear(4, 3))
    data = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))]
    subject = lab.Workload(model, data[0][0], loss=F.cross_entropy, train=data)
    with pytest.raises(MeasureError, match="has no repeated blocks to checkpoint"):
        plan_checkpoints(subject, 10)
    plan = plan_checkpoints(subject, "1 GB", measured=False)
    assert plan.layers == () and plan.is_within and "0 of 0 blocks" in str(plan)


MS = {"a": {"fp32": 4.0, "bf16": 2.0, "fp16": 1.0}, "b": {"fp32": 4.0, "bf16": 1.0, "fp16": 0.9}}
RISES = {"a": {"bf16": 0.1, "fp16": 0.01}, "b": {"bf16": 0.2, "fp16": 0.02}}


def test_the_fastest_formats_within_the_budget_are_chosen():
    assert _chosen(MS, RISES, {}, 1.0) == {"a": "fp16", "b": "fp16"}
    assert _chosen(MS, RISES, {"a": "", "b": ""}, 1.0) == {"a": "bf16", "b": "bf16"}
    assert _chosen(MS, RISES, {"a": "", "b": ""}, 0.25) == {"b": "bf16"}
    assert _chosen(MS, RISES, {"b": ""}, 0.05) == {"a": "fp16"}
    assert _chosen(MS, RISES, {}, 0.0) == {}


def test_the_format_of_most_layers_is_the_default_as_of_autocast():
    assert _default({"a": "bf16", "b": "bf16"}, ["a", "b"]) == "bf16"
    assert _default({"a": "bf16"}, ["a", "b"]) == "fp32"
    assert _default({"a": "bf16", "b": "bf16"}, ["a", "b", "c"]) == "bf16"
    assert _default({"a": "bf16", "b": "fp16"}, ["a", "b"]) == "fp32"
    assert _default({}, ["a"]) == "fp32"
    assert Way("bf16", {"a": "bf16", "b": "fp32"}).own == {"b": "fp32"}
    plan = Way("fp32", {"a": "bf16", "b": "fp32"}).plan
    assert plan.precision == "fp32" and plan.formats == {"a": "bf16"}


def test_autocast_is_raced_where_its_layers_are_faster_and_fp16_holds_their_gradients():
    ways, notes = _ways({"a": "bf16"}, MS, {})
    assert list(ways) == [FP32, "autocast bf16", "autocast fp16", BY_LAYER] and not notes
    assert ways[BY_LAYER] == Way("fp32", {"a": "bf16", "b": "fp32"})
    ways, notes = _ways({"a": "bf16", "b": "bf16"}, MS, {"a": "too small"})
    assert list(ways) == [FP32, "autocast bf16"]  # which the chosen formats are
    assert notes == ["autocast fp16 was not timed: not every layer's gradient fits into it"]
    slow = {"a": {"fp32": 2.0, "bf16": 9.0}, "b": {"fp32": 2.0, "bf16": 1.0}}
    ways, notes = _ways({"b": "bf16"}, slow, {})
    assert list(ways) == [FP32, BY_LAYER]
    assert notes == ["autocast bf16 was not timed: its layers alone take 2.5 × as long as in fp32"]
    assert list(_ways({}, slow, {})[0]) == [FP32]


def step(way: str, ratio: float, low: float, rise: float = 0.0) -> TrainingStepTime:
    return TrainingStepTime(way=way, ms=1.0, ratio=ratio, interval=(low, 2 * ratio), rise=rise)


def test_the_fastest_way_within_the_budget_is_chosen_where_it_is_certainly_faster():
    plain = step(FP32, 1.0, 1.0)
    assert _best([plain], 0.1) is plain
    assert _best([plain, step("a", 1.2, 1.1), step("b", 1.3, 1.2)], 0.1).way == "b"
    assert _best([plain, step("a", 1.2, 1.1), step("b", 1.3, 1.2, rise=0.2)], 0.1).way == "a"
    assert _best([plain, step("a", 1.2, 0.9), step("b", 0.8, 0.7)], 0.1) is plain


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


def planned(monkeypatch, best, budget=1e9) -> tuple[lab.Workload, TrainingFormats]:
    """A plan, where `best` decides in place of the clock."""
    monkeypatch.setattr(planning, "_best", best)
    subject = stack()
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    state = torch.get_rng_state()
    plan = plan_training_formats(subject, seconds=0.5, budget=budget)
    after = subject.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert torch.equal(torch.get_rng_state(), state)
    return subject, plan


@pytest.mark.parametrize("index", [0, -1])
def test_formats_of_a_training_stay_within_the_budget_and_can_be_trained_in(monkeypatch, index):
    subject, plan = planned(monkeypatch, lambda steps, budget: steps[index])
    assert plan.predicted_rise <= plan.budget and len(plan.rows) == 9
    assert all(set(row.rises) == {"bf16", "fp16"} for row in plan.rows)
    assert plan.steps[0].way == FP32 and plan.steps[0].ratio == 1.0 and plan.steps[0].rise == 0
    assert plan.way == plan.steps[index].way and all(step.ms > 0 for step in plan.steps)
    assert plan.measured_rise == plan.steps[index].rise
    if index == 0:
        assert plan.default == "fp32" and not plan.formats
    record = lab.train(subject, epochs=1, precision=plan.default, formats=plan.formats)
    assert len(record.losses) == 3 and "as fast" in str(plan)


def test_what_is_no_layer_stays_in_fp32_where_lower_precision_of_it_costs_too_much(monkeypatch):
    monkeypatch.setattr(planning, "_loss", lambda work, batches, way: 1.0 + (way.default == "bf16"))
    monkeypatch.setattr(planning, "_chosen", lambda ms, *_: dict.fromkeys(list(ms)[1:], "bf16"))
    _, plan = planned(monkeypatch, lambda steps, budget: steps[-1], budget=0.5)
    assert plan.way == BY_LAYER and plan.default == "fp32" and plan.measured_rise == 0
    assert set(plan.formats.values()) == {"bf16"} and len(plan.formats) == 8


def test_a_plan_says_how_fast_each_way_is_and_why_fp32_stays():
    steps = (step(FP32, 1.0, 1.0), step("autocast bf16", 0.8, 0.7), step(BY_LAYER, 1.1, 0.9, 0.3))
    plan = TrainingFormats(workload="w", machine="m", budget=0.1, loss=2.0, way=FP32, steps=steps)
    assert plan.remarks == (
        "autocast bf16: a step 0.80 × (0.70–1.60) as fast as in fp32, loss +0",
        "formats by layer: a step 1.10 × (0.90–2.20) as fast as in fp32, loss +0.3, past the "
        "budget",
        "no way within the budget is certainly faster than fp32 here, which stays",
    )
    chosen = plan.model_copy(update={"way": BY_LAYER})
    assert "a step 1.10 × (0.90–2.20) as fast" in chosen.title and "(chosen)" in chosen.remarks[1]
    assert len(chosen.remarks) == 2


def test_a_format_that_cannot_be_trained_in_is_refused():
    with pytest.raises(MeasureError, match="'int8' is no format to train in"):
        plan_training_formats(stack(), formats=("int8",))
