"""Loops that a switch cannot serve: it is taken back before a result is wrong, and says why."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from tests.support.training_loops import metered

ALONE = {"channels_last": False, "fused_optimizer": False, "memory_pool": False, "threads": False,
         "compile": False}  # fmt: skip


@dataclass
class Answer:
    """An output that torch's trees do not know."""

    chance: torch.Tensor


class Answering(nn.Linear):
    """Chances in a class."""

    def forward(self, x):
        return Answer(torch.sigmoid(super().forward(x)))


class Choosing(nn.Linear):
    """A distribution, which holds its logits."""

    def forward(self, x):
        return torch.distributions.Categorical(logits=super().forward(x))


def of_chances(model, x):
    return F.binary_cross_entropy(model(x).chance, torch.ones(4, 2))


def of_choices(model, x):
    return -model(x).log_prob(torch.ones(4)).mean()


def run(make, loss_of, steps, meter=None):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        if meter is not None:
            meter.work()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", [lambda: Answering(8, 2), lambda: Choosing(8, 2)])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_loop_whose_outputs_cannot_be_reached_is_computed_in_fp32(monkeypatch, make, precision):
    loss_of = of_chances if isinstance(make(), Answering) else of_choices
    expected = run(make, loss_of, 30)
    with metered(monkeypatch, lambda way: 0.5 if precision in way else 1.0) as meter:
        lab.enable(precision=precision, **ALONE)
        assert run(make, loss_of, 30, meter) == expected
        row = lab.status()[precision]
        assert row.state == "taken back"
        assert row.why == "the output is a class whose tensors cannot be reached"


class Encoder(nn.Module):
    """A layer whose output is penalized, beside the model's output."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 4), nn.Linear(4, 8)

    def forward(self, x):
        hidden = self.encode(x)
        self.penalty = hidden.float().square().mean()
        return self.decode(hidden)


def test_an_auxiliary_loss_beside_the_outputs_ends_fp16_with_the_gradients_of_fp32(monkeypatch):
    loss_of = lambda model, x: F.mse_loss(model(x), x) + model.penalty
    expected = run(Encoder, loss_of, 30)
    with metered(monkeypatch, lambda way: 0.5 if "fp16" in way else 1.0) as meter:
        lab.enable(precision="fp16", **ALONE)
        assert run(Encoder, loss_of, 30, meter) == pytest.approx(expected, rel=1e-3)
        status = lab.status()
    assert status["fp16"].state == "taken back"
    assert "gradients take another way than from the outputs" in status["fp16"].why
    assert len([note for note in status.notes if "fp16 taken back" in note]) == 1


def test_a_loop_that_views_its_weights_and_gradients_keeps_channels_last(monkeypatch):
    make = lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1),
        nn.Flatten(),
    )  # fmt: skip

    def loss_of(model, x):
        if model[1].weight.grad is not None:
            torch.cat([weight.grad.view(-1) for weight in model.parameters()])
        flat = nn.utils.parameters_to_vector(model.parameters())
        with torch.no_grad():
            model[2](model[1](model[0](x))).view(4, -1)
        return model(x).square().mean() + 0 * flat.sum()

    expected = run(make, loss_of, 60)
    with metered(monkeypatch, lambda way: 0.5 if "channels_last" in way else 1.0) as meter:
        lab.enable(precision=None, **(ALONE | {"channels_last": True}))
        losses = run(make, loss_of, 60, meter)
        assert lab.status().on == ("channels_last",)
    assert losses == pytest.approx(expected, rel=1e-4)
