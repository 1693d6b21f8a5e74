"""The models that `benchmarks parallel` trains on several processes: a CNN with batch norm, a
vision transformer, and a GPT-like decoder whose embedding is its head.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab.workload import Workload
from paifuser_lab.zoo.vit import VisionTransformer

from .train_models import DecoderLayer, next_token

CLASSES, WORDS = 10, 128


class SmallCNN(nn.Module):
    """Convolutions with batch normalization, and a classifier of two linear layers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.second = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc1, self.fc2 = nn.Linear(32 * width, 64), nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(self.second(self.first(images)))
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores


class TiedDecoder(nn.Module):
    """A GPT-like decoder that scores words by their embeddings."""

    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4, length: int = 16) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.word.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def images(count: int, batch: int, side: int = 16) -> list[tuple[Tensor, Tensor]]:
    """Batches of noisy patterns, one for each class."""
    generator = torch.Generator().manual_seed(5)
    patterns = torch.randn(CLASSES, 3, side, side, generator=generator)
    batches = []
    for _ in range(count):
        labels = torch.randint(CLASSES, (batch,), generator=generator)
        noise = torch.randn(batch, 3, side, side, generator=generator)
        batches.append((0.5 * patterns[labels] + noise, labels))
    return batches


def sentences(count: int, batch: int, length: int = 16) -> list[tuple[Tensor, Tensor]]:
    """Batches of words in arithmetic sequences."""
    generator = torch.Generator().manual_seed(6)
    batches = []
    for _ in range(count):
        starts = torch.randint(WORDS, (batch, 1), generator=generator)
        words = (starts + 3 * torch.arange(length + 1)) % WORDS
        batches.append((words[:, :-1], words[:, 1:]))
    return batches


def cnn(*, width: int = 16, batches: int = 4, batch: int = 16, seed: int = 0) -> Workload:
    """The CNN with its batches."""
    torch.manual_seed(seed)
    train = images(batches, batch)
    return Workload(SmallCNN(width), train[0][0], name="cnn", loss=F.cross_entropy, train=train)


def vit(
    *, width: int = 32, depth: int = 2, batches: int = 4, batch: int = 16, seed: int = 0
) -> Workload:
    """The vision transformer with its batches."""
    torch.manual_seed(seed)
    model = VisionTransformer(side=16, patch=4, width=width, depth=depth, heads=4, classes=CLASSES)
    train = images(batches, batch)
    return Workload(model, train[0][0], name="vit", loss=F.cross_entropy, train=train)


def decoder(
    *, width: int = 32, depth: int = 2, batches: int = 4, batch: int = 16, seed: int = 0
) -> Workload:
    """The decoder with its batches."""
    torch.manual_seed(seed)
    train = sentences(batches, batch)
    return Workload(
        TiedDecoder(width, depth), train[0][0], name="gpt-like", loss=next_token, train=train
    )


MODELS = {"cnn": cnn, "vit": vit, "gpt-like": decoder}


def learn(
    work: Workload,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: Iterable[int],
    part: tuple[int, int] = (1, 0),
) -> list[float]:
    """Steps of an ordinary loop on a part of each batch: of so many ranks, this one; the losses."""
    assert work.loss is not None and work.train is not None
    losses, (ranks, rank) = [], part
    for step in steps:
        inputs, target = work.train[step % len(work.train)]
        loss = work.loss(model(inputs.chunk(ranks)[rank]), target.chunk(ranks)[rank])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
