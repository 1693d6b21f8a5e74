"""A training computes in the formats of its plan, and leaves fp32 when the losses call for it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paifuser_lab.errors import StepError
from paifuser_lab.training import TrainPlan
from paifuser_lab.training.precision import LayerFormats, PrecisionSchedule

CPU = torch.device("cpu")


def schedule(losses=(), steps=100, **options) -> PrecisionSchedule:
    made = PrecisionSchedule(TrainPlan(precision="bf16", **options), steps)
    for loss in losses:
        made.see(loss)
    return made


def test_lower_precision_begins_at_once_unless_the_plan_says_later():
    assert schedule().is_lower
    assert not schedule(fp32_until=0.5).is_lower
    assert not PrecisionSchedule(TrainPlan(), 100).is_lower, "there is no lower format"


@pytest.mark.parametrize(("until", "switch"), [(0.25, 25), (7, 7)])
def test_lower_precision_begins_after_a_share_or_a_number_of_steps(until, switch):
    made = schedule(fp32_until=until)
    states = []
    for _ in range(40):
        states.append(made.is_lower)
        made.see(1.0)
    assert states.index(True) == switch and all(states[switch:])
    assert made.marks == [(switch, f"bf16 from here: {switch} steps were done in fp32")]


def test_lower_precision_begins_when_the_mean_loss_no_longer_falls():
    falling = [4.0] * 20 + [3.0] * 20 + [2.0] * 20
    assert not schedule(falling, fp32_until="settled").is_lower
    settled = schedule([*falling, *[1.99] * 20], fp32_until="settled")
    below_zero = schedule([loss - 100 for loss in [*falling, *[1.99] * 20]], fp32_until="settled")
    assert below_zero.is_lower
    assert settled.marks == [(80, "bf16 from here: the mean loss settled at 1.99")]


def test_fp32_comes_back_for_good_when_the_loss_rises_after_the_switch():
    calm, rising = [1.0] * 10, [1.6] * 20
    made = schedule([*calm, *rising], fp32_until=10)
    assert not made.is_lower
    assert made.marks[-1] == (30, "back to fp32: the mean loss rose from 1 to 1.6")
    for _ in range(50):
        made.see(1.0)
    assert not made.is_lower and len(made.marks) == 2
    assert schedule([*calm, *rising], fp32_until=10, back_on_trouble=False).is_lower
    assert schedule([*calm, *[1.4] * 20], fp32_until=10).is_lower
    assert schedule([-10.0] * 30, fp32_until=10).is_lower


def test_a_nan_after_the_switch_brings_fp32_back_at_once():
    made = schedule([1.0] * 12 + [math.nan], fp32_until=10)
    assert made.marks[-1] == (13, "back to fp32: the loss became nan")


@given(
    st.lists(st.one_of(st.floats(0.1, 9), st.just(math.nan)), max_size=120),
    st.sampled_from([0.0, 0.3, 15, "settled"]),
)
def test_a_schedule_is_a_function_of_the_losses(losses, until):
    first, second = (schedule(losses, fp32_until=until) for _ in range(2))
    assert first.marks == second.marks and first.is_lower == second.is_lower
    assert [step for step, _ in first.marks] == sorted({step for step, _ in first.marks})


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.seen: dict[str, torch.dtype] = {}

    def forward(self, x):
        for name in ("first", "second", "third"):
            x = getattr(self, name)(x)
            self.seen[name] = x.dtype
        return x


def test_each_layer_computes_in_its_own_format_inside_the_default():
    model = Twins()
    formats = LayerFormats(model, {"*": "fp16", "second": "fp32", "third": "bf16"}, CPU)
    with formats.installed():
        with formats.computing("bf16", is_lower=True):
            model(torch.ones(1, 4))
        expected = {"first": torch.float32, "second": torch.float32, "third": torch.bfloat16}
        assert model.seen == expected, "fp16 amid bf16 hands on fp32"
        with formats.computing("bf16", is_lower=False):
            model(torch.ones(1, 4))
        assert set(model.seen.values()) == {torch.float32}
    assert not any("forward" in vars(layer) for layer in model.modules())
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_a_lower_layer_amid_fp32_hands_fp32_to_its_neighbours():
    model = Twins()
    x = torch.randn(1, 4)
    plain = model.first(x)
    formats = LayerFormats(model, {"first": "bf16"}, CPU)
    with formats.installed(), formats.computing("fp32", is_lower=True):
        model(x)
        assert set(model.seen.values()) == {torch.float32}
        rounded = model.first(x)
    assert not torch.equal(rounded, plain) and torch.equal(rounded, rounded.bfloat16().float())


class Branches(nn.Module):
    """Two convolutions whose outputs are joined, and a layer that reads both."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = (
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(8, 2, 1),
        )

    def forward(self, x):
        joined = torch.cat([self.left(x), self.right(x)], dim=1)
        return self.both(joined)


@pytest.mark.parametrize("default", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("own", [{"left": "fp16"}, {"left": "fp16", "right": "bf16"}])
def test_branches_of_different_formats_are_joined(default, own):
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(1, 2, 3, 3)
    expected = model(x)
    formats = LayerFormats(model, own, CPU)
    with formats.installed(), formats.computing(default, is_lower=True):
        output = model(x)
        output.float().sum().backward()
    error = (output.float() - expected).norm() / expected.norm()
    assert 0 < error < 0.02
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_a_layer_kept_in_fp32_under_bf16_computes_in_fp32():
    model = Twins()
    formats = LayerFormats(model, {"second": "fp32"}, CPU)
    with formats.installed(), formats.computing("bf16", is_lower=True):
        model(torch.ones(1, 4))
    assert [*model.seen.values()] == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_a_pattern_without_a_layer_is_refused():
    with pytest.raises(StepError, match=r"formats: 'fourth' matches no layer; there are first"):
        LayerFormats(Twins(), {"fourth": "bf16"}, CPU)
