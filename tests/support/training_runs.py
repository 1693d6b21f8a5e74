"""A small training run with random numbers everywhere, completed at once or resumed."""

from __future__ import annotations

import random

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from paifuser_lab.model.weights import weights_hash
from paifuser_lab.training import Training, train
from paifuser_lab.workload import Workload

CPU = torch.device("cpu")
COUNT = 6


class Dicey(nn.Module):
    """Batch-norm and dropout, which a resumed training is likely to get wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.3),
            nn.Linear(8, 3),
        )
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + 1
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


class Noisy(Dataset):
    """Examples drawn anew at each access by torch, numpy and random."""

    def __len__(self) -> int:
        return COUNT * 5

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        shift = torch.randn(()) + float(numpy.random.rand()) + random.random()
        return torch.full((4,), float(index)) / 30 + shift, index % 3


class Stream(IterableDataset):
    """Batches in sequence, of unknown number."""

    def __iter__(self):
        yield from pairs()


class Own(list):
    """A list that is not known to be constant."""


def pairs(count: int = COUNT) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(5, 4, generator=generator), torch.arange(5) % 3) for _ in range(count)]


def loader(**options) -> DataLoader:
    return DataLoader(Noisy(), batch_size=5, shuffle=True, **options)


SOURCES = {
    "a list": pairs,
    "a loader that shuffles": loader,
    "a loader with a generator": lambda: loader(generator=torch.Generator().manual_seed(3)),
    "a loader with workers": lambda: loader(num_workers=1),
    "a loader of no known length": lambda: DataLoader(Stream(), batch_size=None),
}


def dicey() -> nn.Module:
    torch.manual_seed(1)
    return Dicey()


def work(model: nn.Module | None = None, *, count: int = COUNT, **more) -> Workload:
    """A workload of this model and data."""
    known = {"loss": F.cross_entropy, "train": pairs(count)}
    return Workload(model or dicey(), torch.zeros(2, 4), name="dicey", **known | more)


def surprise(model: nn.Module, inputs, target) -> Tensor:
    return F.cross_entropy(inputs(model), target)


def plan(**options) -> Training:
    return Training(**{"epochs": 3, "learning_rate": 0.05} | options)


def everything(model: nn.Module) -> str:
    return weights_hash(dict((*model.named_parameters(), *model.named_buffers())))


def trained(
    source=None,
    model=None,
    objective=surprise,
    checkpoint_file=None,
    extra=None,
    options=None,
    **hooks,
):
    model = model or dicey()
    result = train(
        model,
        pairs() if source is None else source,
        objective,
        plan(**(options or {})),
        checkpoint_file=checkpoint_file,
        extra=extra,
        **hooks,
    )
    return model, result


def stopping_after(steps: int):
    """A `should_stop` that returns true after this many calls."""
    calls = iter(range(steps + 1))
    return lambda: next(calls, steps) >= steps
