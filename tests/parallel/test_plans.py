"""Plans without processes: which blocks are divided, what a step would take, and why."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.parallel_models import MODELS
from paifuser_lab.errors import ParallelError
from paifuser_lab.machine.host import threads
from paifuser_lab.parallel import ColumnParallelLinear, pipeline, plan, plans, tensor_plan
from paifuser_lab.parallel import tensor_parallel as divide
from paifuser_lab.parallel.chain import Chain
from paifuser_lab.parallel.pipelines import target_part
from paifuser_lab.parallel.plans import LARGE, Measured, link_of, power_bytes
from paifuser_lab.parallel.simulation import Communication, Compute, buckets_of, simulate_steps
from paifuser_lab.records import Ceiling, LayerProfile, Link, Profile
from paifuser_lab.workload import Inputs, Workload

COMPUTE = Compute(1.0, 2.0, 0.5)
NO_DELAY = Link(latency_us=0, gbit_per_s=1e12)


class Gated(nn.Module):
    """An MLP whose hidden values are multiplied by a gate."""

    def __init__(self, *, tied=False):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        if tied:
            self.up.weight = self.gate.weight

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(self.gate(y).sigmoid() * self.up(y))


class Mixing(nn.Module):
    """Two linear layers with a softmax between them, whose sum is over what would be divided."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x).softmax(-1))


def profile_of(*rows):
    """A profile of these layers."""
    return Profile(
        workload="net",
        machine="a machine",
        threads=1,
        ceiling=Ceiling(threads=1, fp32_gflops=9, bandwidth_gbs=2),
        latency_ms=2,
        latency_spread_ms=(2, 2),
        rounds_ms=(2,),
        slowdown_while_profiling=0.1,
        watching_us=1,
        call_us=1,
        operator_us=1,
        layers=rows,
    )


def blocks(model, processes=2):
    return tensor_plan(Workload(model, torch.randn(4, 8)), processes).blocks


def test_a_gated_mlp_is_one_block_with_two_layers_of_columns():
    (block,) = blocks(Gated())
    assert block.layers == ("gate", "up", "down")
    assert block.kind == "mlp" and not block.reason
    assert block.exchanged_bytes == (4 * 4 * 8,) * 3


@pytest.mark.parametrize(
    ("model", "processes", "part"),
    [
        (Gated(tied=True), 2, "'gate.weight' = 'up.weight' is tied"),
        (Gated(), 5, "12 inputs of 'down' cannot be divided by 5"),
        (Mixing(), 2, "do not add up to the whole"),
    ],
)
def test_a_block_that_cannot_be_divided_says_why(model, processes, part):
    (block,) = blocks(model, processes)
    assert part in block.reason


def test_heads_that_the_processes_do_not_divide_stay_whole():
    divided = tensor_plan(MODELS["vit"](), 8)
    reasons = {block.kind: block.reason for block in divided.blocks}
    assert "4 heads of 'blocks.1.attention' cannot be divided by 8" in reasons["attention"]
    assert reasons["mlp"] == ""
    assert divided.own_parameters < divided.parameters


@pytest.mark.parametrize(
    "call",
    [
        lambda: ColumnParallelLinear(nn.Linear(4, 4)),
        lambda: divide(MODELS["vit"]()),
        lambda: pipeline(MODELS["vit"]()),
    ],
)
def test_without_processes_the_error_says_how_to_start_them(call):
    with pytest.raises(ParallelError, match=r"parallel\.run starts"):
        call()


def test_the_parts_of_a_chain_give_what_the_model_gives():
    work = MODELS["gpt-like"]()
    part = Inputs((work.inputs.args[0][:4],))
    chain = Chain(work.model, part, name=work.name)
    assert len(chain) == 7
    values = part.args[0]
    for module in chain.parts:
        values = module(values)
    torch.testing.assert_close(values, work.model.train()(*part.args))
    costs = chain.costs(work.loss, work.train[0][1][:4])
    assert all(cost.forward_ms > 0 and cost.backward_ms > 0 for cost in costs)
    assert costs[1].entry_bytes == 4 * 4 * 16 * 32
    times = {"head": 3.0, "norm": 1.0}
    rows = [LayerProfile(layer=name, kind="x", self_ms=ms) for name, ms in times.items()]
    known = chain.costs(work.loss, None, profile=profile_of(*rows))
    assert [cost.forward_ms for cost in known] == pytest.approx([0, 0, 0, 0, 0, 1, 3])
    assert known[-1].backward_ms == pytest.approx(6)
    with pytest.raises(ParallelError, match="has no layer of gpt-like"):
        chain.costs(work.loss, None, profile=profile_of(LayerProfile(layer="other", kind="x")))


def test_a_model_that_cannot_be_traced_is_refused_in_a_sentence():
    class Branching(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(ParallelError, match=r"cannot be cut into stages.*torch\.export"):
        Chain(Branching(4, 4), Inputs((torch.ones(2, 4),)), name="branching")


@given(st.integers(2, 16), st.floats(0.1, 100), st.floats(1e3, 1e8), st.integers(1, 4))
def test_a_simulated_step_lies_between_its_bounds(ranks, gbit_per_s, size, count):
    link = Link(latency_us=5, gbit_per_s=gbit_per_s)
    buckets = (size / count,) * count
    sent_ms = sum(1e3 * link.ring_s(bucket, ranks) for bucket in buckets)
    waiting = Communication(buckets, is_overlapped=False)
    apart = simulate_steps(COMPUTE, waiting, link, ranks, steps=4).step_ms
    overlapped = simulate_steps(COMPUTE, Communication(buckets), link, ranks, steps=4).step_ms
    assert apart == pytest.approx(COMPUTE.total_ms + sent_ms)
    assert max(COMPUTE.total_ms, sent_ms) <= overlapped + 1e-9
    assert overlapped <= apart + 1e-9


def test_rare_averages_wait_less_for_others_and_for_the_link():
    link, spread = Link(latency_us=10, gbit_per_s=1), (0.8, 1.0, 1.2)
    steps = [
        simulate_steps(
            COMPUTE, Communication((1e5,), every=every, is_overlapped=False), link, 8, spread=spread
        )
        for every in (1, 8, 32)
    ]
    waits = [step.wait_ms for step in steps]
    assert waits == sorted(waits, reverse=True) and waits[0] > 3 * waits[2]
    alone = simulate_steps(COMPUTE, Communication(), NO_DELAY, 1)
    assert alone.step_ms == pytest.approx(3.5) and alone.wait_ms == pytest.approx(0, abs=1e-9)


def test_an_exchange_takes_at_least_its_own_time_however_fast_the_link():
    rare = Communication((1e5,), every=4, least_ms=8.0)
    assert simulate_steps(COMPUTE, rare, NO_DELAY, 2).step_ms == pytest.approx(3.5 + 8 / 4)
    slow = Link(latency_us=0, gbit_per_s=0.01)  # 80 ms
    assert simulate_steps(COMPUTE, rare, slow, 2).step_ms == pytest.approx(3.5 + 80 / 4)


def test_bytes_are_those_of_the_exchange():
    assert Communication((8e6,), every=4).sent_bytes(4) == 8e6 * 2 * 3 / 4 / 4
    assert buckets_of(60e6) == (20e6,) * 3
    assert power_bytes(torch.Size((100, 50))) == 4 * 4 * 150
    assert power_bytes(torch.Size((3, 2))) == 24 and power_bytes(torch.Size((7,))) == 28


def test_a_link_is_found_from_a_small_and_a_large_exchange():
    known = Link(latency_us=50, gbit_per_s=8)
    found = link_of(known.ring_s(0, 4), known.ring_s(4 * LARGE, 4), 4)
    assert found.latency_us == pytest.approx(50) and found.gbit_per_s == pytest.approx(8)


@pytest.fixture
def timed(monkeypatch):
    """A step takes as many milliseconds as the batch has examples."""

    def measured(work, inputs, target, rounds=1):
        return Measured(Compute(0.3 * len(target), 0.6 * len(target), 0.1 * len(target)), (1.0,))

    monkeypatch.setattr(plans, "measure_step", measured)


def test_a_plan_sorts_the_strategies_and_names_the_fastest_with_its_reason(timed):
    work = MODELS["vit"]()
    fast = plan(work, 4, link=NO_DELAY)
    slow = plan(work, 4, link=Link(latency_us=1000, gbit_per_s=0.01))
    assert fast["one process"].step_ms == pytest.approx(16)
    assert fast["DDP"].step_ms == pytest.approx(4, rel=1e-3)
    assert slow.fastest.strategy in ("one process", "local 32", "pipeline, 1f1b")
    assert slow["DDP"].step_ms > slow["DDP, bf16"].step_ms > slow["local 32"].step_ms
    for found in (fast, slow):
        times = [option.step_ms for option in found.options if option.is_possible]
        assert times == sorted(times) and len(found.options) == 8
        assert found.fastest.reason in found.sentence in str(found)
    weights = sum(weight.nbytes for weight in work.model.parameters())
    assert fast["DDP"].sent_bytes == pytest.approx(weights * 2 * 3 / 4)
    assert fast["FSDP2"].state_bytes == weights
    assert fast["tensor parallel"].state_bytes < fast["DDP"].state_bytes


def test_processes_on_one_machine_are_predicted_with_a_share_of_its_threads(monkeypatch):
    timed = set()

    def measured(work, inputs, target, rounds=1):
        timed.add((len(target), torch.get_num_threads()))
        return Measured(Compute(1, 1, 1), (1.0,))

    monkeypatch.setattr(plans, "measure_step", measured)
    monkeypatch.setattr(plans, "measure_link", lambda processes: (NO_DELAY, 1.0))
    with threads(2):
        plan(MODELS["vit"](), 2)
    assert timed == {(16, 2), (8, 1), (16, 1)}


def test_a_stage_of_a_pipeline_updates_its_own_weights(monkeypatch):
    update_ms = 1e5
    measured = Measured(Compute(1, 1, update_ms), (1.0,))
    monkeypatch.setattr(plans, "measure_step", lambda *arguments: measured)
    stages = plan(MODELS["vit"](), 2, link=NO_DELAY)["pipeline, 1f1b"]
    assert update_ms / 2 <= stages.compute_ms <= stages.step_ms < update_ms


def test_what_is_impossible_is_in_the_plan_with_its_reason(timed):
    model = nn.Sequential(nn.Linear(8, 8))
    batch = (torch.randn(8, 8), torch.randn(8, 8))
    work = Workload(model, batch[0], loss=nn.functional.mse_loss, train=[batch])
    found = plan(work, 2, link=NO_DELAY)
    assert not found["tensor parallel"].is_possible
    assert "cannot be cut into 2 stages" in found["pipeline, 1f1b"].reason
    assert found.options[-1].step_ms is None


@pytest.mark.parametrize(
    ("options", "part"), [({"processes": 1}, "processes=1"), ({"processes": 3}, "batch of 16")]
)
def test_a_plan_that_cannot_be_made_says_why(options, part):
    with pytest.raises(ParallelError, match=part):
        plan(MODELS["cnn"](), link=NO_DELAY, **options)


def test_a_plan_reads_the_first_batch_of_a_loader(timed):
    work = MODELS["vit"]()
    (inputs, target), *_ = work.train
    work.train = DataLoader([*zip(inputs, target, strict=True)], batch_size=len(target))
    assert plan(work, 4, link=NO_DELAY)["one process"].step_ms == pytest.approx(16)


def test_the_part_of_a_target_has_the_rows_of_its_tensors_and_the_rest_as_it_is():
    inputs, rows, weights = Inputs((torch.ones(8, 2),)), torch.arange(8), torch.ones(5)
    pair, nothing = target_part(inputs, ({"label": rows, "weights": weights}, None), 4)
    assert pair["label"].tolist() == [0, 1] and pair["weights"] is weights and nothing is None
    assert target_part(inputs, rows, 2).tolist() == [0, 1, 2, 3]
    assert target_part(inputs, None, 2) is None


def test_a_workload_without_data_is_refused():
    with pytest.raises(ParallelError, match="has no loss or no train data"):
        plan(Workload(nn.Linear(2, 2), torch.ones(2, 2)), link=NO_DELAY)
