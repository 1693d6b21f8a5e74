"""Weights in bf16: plain rounding stalls where stochastic rounding and Kahan summation go on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import PaifuserError, StepError, StoppedError
from paifuser_lab.training.rounding import RoundedOptimizer, stochastically_rounded, to_bf16_weights
from tests.support.training_runs import Dicey, everything, stopping_after, work

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS, RATE = 200, 1e-4


def weight_after(rounding: str) -> float:
    """A weight that starts at 1 and is asked to fall by RATE in each step, in bf16."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
    optimizer = RoundedOptimizer(
        [{"params": [weight]}], lambda groups: torch.optim.SGD(groups, lr=RATE), rounding
    )
    for _ in range(STEPS):
        weight.grad = None
        weight.sum().backward()
        optimizer.step()
    return float(weight.detach().float().mean())


def test_plain_bf16_weights_stall_where_compensated_ones_go_on():
    goal = 1 - STEPS * RATE
    assert weight_after("nearest") == 1.0, "each step is below half a unit in the last place"
    assert weight_after("kahan") == pytest.approx(goal, abs=2**-8)
    assert weight_after("stochastic") == pytest.approx(goal, abs=2**-8)
    assert weight_after("stochastic") != weight_after("kahan")


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(0, 100))
@settings(max_examples=50)
def test_stochastic_rounding_gives_one_of_the_two_neighbours(value, seed):
    torch.manual_seed(seed)
    values = torch.full((64,), value)
    rounded = stochastically_rounded(values)
    spacing = (values.abs() * 2**-7).clamp(min=torch.finfo(torch.bfloat16).smallest_normal)
    assert rounded.dtype == torch.bfloat16
    assert bool(((rounded.float() - values).abs() <= spacing).all())
    assert len(set(rounded.tolist())) <= 2


def test_stochastic_rounding_keeps_the_mean_and_what_is_exact_or_not_finite():
    torch.manual_seed(0)
    values = torch.full((40_000,), 1 + 2**-9)
    assert float(stochastically_rounded(values).float().mean()) == pytest.approx(
        1 + 2**-9, abs=2e-4
    )
    exact = torch.tensor([1.5, -2.0, 0.0, float("inf"), float("-inf")])
    assert torch.equal(stochastically_rounded(exact).float(), exact)
    # NaNs with the least and the most bits: noise would make an infinity or a zero of them
    nans = torch.tensor([0x7F800001, 0x7FFFFFFF] * 50, dtype=torch.int32).view(torch.float32)
    assert bool(stochastically_rounded(nans).isnan().all())


def test_norms_keep_their_weights_in_fp32():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4))
    to_bf16_weights(model)
    kinds = [{weight.dtype for weight in layer.parameters()} for layer in model]
    assert kinds == [{torch.bfloat16}, {torch.float32}, {torch.float32}]


def test_frozen_weights_stay_as_they_are():
    frozen = work()
    frozen.model.first.requires_grad_(False)
    before = frozen.model.first.weight.clone()
    lab.train(frozen, weights="bf16", epochs=1)
    assert torch.equal(frozen.model.first.weight, before)


def test_a_training_that_is_refused_rounds_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    lab.train(work(), weights="bf16", epochs=1, checkpoint=path)
    for options, message in (
        ({"checkpointed": ("nowhere",)}, "'nowhere' is no layer"),
        ({"checkpoint": path}, "began from other weights"),
    ):
        refused = work(Dicey())
        hash_before = everything(refused.model)
        with pytest.raises(PaifuserError, match=message):
            lab.train(refused, weights="bf16", epochs=1, **options)
        assert everything(refused.model) == hash_before


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_training_with_bf16_weights_resumes_exactly(tmp_path, rounding, optimizer):
    options = {"weights": "bf16", "rounding": rounding, "optimizer": optimizer, "epochs": 2}
    whole = work()
    losses = lab.train(whole, **options).losses
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        lab.train(work(), checkpoint=path, should_stop=stopping_after(7), **options)
    again = work()
    torch.manual_seed(5)
    assert lab.train(again, checkpoint=path, **options).losses == losses
    assert everything(again.model) == everything(whole.model)
    weight = again.model.first.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weight.to(torch.bfloat16).float()), "as bf16 holds it"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "bf16", "precision": "fp16"}, "weights in bf16 compute in bf16"),
        ({"weights": "bf16", "formats": {"first": "fp32"}}, "weights in bf16 compute in bf16"),
        ({"weights": "bf16", "fp32_until": 0.5}, "from the first step; leave fp32_until out"),
        ({"rounding": "kahan"}, "rounding='kahan' is for weights in bf16"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    before = work()
    hash_before = everything(before.model)
    with pytest.raises(StepError, match=message):
        lab.train(before, **options)
    assert everything(before.model) == hash_before
