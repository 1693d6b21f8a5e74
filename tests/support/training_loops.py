"""Training loops as users write them, and a meter whose clock a test moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.accelerate import Acceleration, features
from paifuser_lab.accelerate.meter import Meter, Moment
from paifuser_lab.accelerate.race import Way
from paifuser_lab.accelerate.switches import precision


class Digits(nn.Module):
    """Two convolutions with batch-norm and dropout, flattened by a view."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
        )  # fmt: skip
        self.head = nn.Linear(8 * 2 * 2, 3)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)
        return self.head(features.view(-1, 8 * 2 * 2))


def made(
    kind: type[torch.optim.Optimizer] = torch.optim.Adam, **options: Any
) -> tuple[Digits, torch.optim.Optimizer]:
    """The model with the weights of one seed, and its optimizer."""
    torch.manual_seed(0)
    model = Digits()
    return model, kind(model.parameters(), **({"lr": 0.01} | options))


def product(factors: dict[str, float]) -> Callable[[Way], float]:
    """The cost of a step as the product of what each switch in force multiplies it by."""
    return lambda way: math.prod(factors.get(name, 1.0) for name in way)


class TestMeter(Meter):
    """A clock that only `work` moves: by what a step costs in the way that is in force."""

    __test__ = False

    def __init__(self, cost: Callable[[Way], float] = lambda way: 1.0) -> None:
        self.cost, self.seconds = cost, 0.0
        self.acceleration: Acceleration | None = None

    def now(self, device: torch.device, *, is_measuring: bool = False) -> Moment:
        return Moment(self.seconds, self.seconds)

    def restart_peak(self, device: torch.device) -> bool:
        return False

    def work(self) -> None:
        """A step of the loop takes place."""
        assert self.acceleration is not None
        self.seconds += self.cost(self.acceleration.loop.on)


@contextmanager
def metered(
    monkeypatch: pytest.MonkeyPatch, cost: Callable[[Way], float] = lambda way: 1.0
) -> Iterator[TestMeter]:
    """`lab.enable()` with a meter of the test, on a processor whose products in bf16 are fast;
    whatever is in force ends with the block.
    """
    meter = TestMeter(cost)

    def made() -> Acceleration:
        meter.acceleration = Acceleration(meter)
        return meter.acceleration

    monkeypatch.setattr(features, "Acceleration", made)
    monkeypatch.setattr(precision, "product_speedup", lambda dtype: 2.0)
    try:
        yield meter
    finally:
        if meter.acceleration is not None:
            meter.acceleration.stop()
        features._in_force.clear()


@contextmanager
def accelerated(
    monkeypatch: pytest.MonkeyPatch,
    cost: Callable[[Way], float] = lambda way: 1.0,
    *,
    memory_pool: bool = False,
    **options: Any,
) -> Iterator[TestMeter]:
    """`lab.enable(**options)` with a meter of the test; neither threads nor compiling are tried."""
    with metered(monkeypatch, cost) as meter:
        lab.enable(memory_pool=memory_pool, threads=False, compile=False, **options)
        yield meter


def batch(step: int, count: int = 8) -> tuple[Tensor, Tensor]:
    """The images and labels of a step, always the same."""
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(3, (count,), generator=generator)
    images = torch.randn(count, 1, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
    return images, labels


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    first: int = 0,
    work: Callable[[], None] = lambda: None,
) -> list[float]:
    """An ordinary loop; its losses."""
    criterion = nn.CrossEntropyLoss()
    losses = []
    for step in range(first, first + steps):
        images, labels = batch(step)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        work()
        optimizer.step()
        losses.append(loss.item())
    return losses
