"""Where a NaN began, as a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.accelerate.calls import AcceleratedCall, origin_of_nan
from tests.support.training_loops import metered


class Normalised(nn.Module):
    """In fp16 its first layer overflows where its input is large."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8, bias=False), nn.Linear(8, 2)
        with torch.no_grad():
            self.first.weight.fill_(10.0)

    def forward(self, x):
        return self.last(F.normalize(self.first(x)))


class Owner:
    def note_evaluation(self):
        raise AssertionError("it is in training")

    def recover(self, call, error, again):
        raise error


def origin(model, *args):
    call = AcceleratedCall(model, Owner())
    call.last = (args, {})
    return origin_of_nan([call], lambda twin: lambda args, kwargs: twin(*args, **kwargs))


def test_a_nan_that_only_fp16_has_is_named_where_fp16_overflows(monkeypatch):
    torch.manual_seed(0)
    model = Normalised()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with metered(monkeypatch) as meter:
        acceleration = lab.enable(
            precision="fp16", fused_optimizer=False, memory_pool=False, threads=False, compile=False
        )

        def step(size):
            optimizer.zero_grad()
            model(torch.full((8, 4), size)).square().mean().backward()
            meter.work()
            optimizer.step()

        for _ in range(3):
            step(1.0)
        acceleration.loop.go(frozenset({"fp16"}))
        step(3000.0)  # times 4 × 10
        notes = lab.status().notes
        expected = "the loss is nan; it began in layer 'first' (Linear), whose output overflows"
        assert expected in notes
        assert "fp16 taken back: the loss became nan; the step was skipped" in notes


def test_a_nan_is_named_where_it_began_in_a_whole_sentence():
    model = Normalised()
    assert origin(model, torch.ones(2, 4)) == "it began after the model, in the loss"
    assert origin(model, torch.full((2, 4), float("nan"))) == "it came with the inputs of the model"
    with torch.no_grad():
        model.last.weight[0, 0] = float("nan")
    assert origin(model, torch.ones(2, 4)) == "it began in layer 'last' (Linear)"

    class Divided(nn.Module):
        def forward(self, x):
            return x / x

    assert origin(Divided(), torch.zeros(2)) == "it began in the model itself (Divided)"
    assert origin(nn.Sequential(nn.Identity(), Divided()), torch.zeros(2)) == (
        "it began in layer '1' (Divided)"
    )


def test_a_model_that_cannot_be_copied_is_said_to_be_one():
    model = nn.Linear(4, 2)
    model.handle = (_ for _ in ())
    expected = "where it began is not known: a copy does not run (TypeError)"
    assert origin(model, torch.ones(1, 4)) == expected


@pytest.mark.parametrize("value", [float("-inf"), float("inf")])
def test_an_infinity_that_no_output_has_is_not_blamed(value):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = nn.Threshold(0.5, value)

        def forward(self, x):
            return torch.nan_to_num(self.mask(x), posinf=0.0, neginf=0.0)

    assert origin(Masked(), torch.rand(4)) == "it began after the model, in the loss"
