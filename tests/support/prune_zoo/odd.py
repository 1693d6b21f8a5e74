"""Unusual structures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.support.prune_zoo.architecture import architecture, images, tokens, vectors
from tests.support.prune_zoo.convolutional import block

ROWS = vectors(4, 12)


@architecture("perceptron", ROWS)
def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.Tanh(),
        nn.Linear(32, 5),
    )


@architecture("autoencoder, tied", ROWS)
class TiedAutoencoder(nn.Module):
    """The decoder uses the transposed weight of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(12, 32)
        self.bias = nn.Parameter(torch.zeros(12))

    def forward(self, x: Tensor) -> Any:
        return functional.linear(torch.relu(self.into(x)), self.into.weight.t(), self.bias)


@architecture("flattened branches", images(size=8))
class FlattenedBranches(nn.Module):
    """Two feature maps of different size, flattened and concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = (
            block(3, 16),
            block(3, 8, stride=2),
            nn.Linear(16 * 64 + 8 * 16, 10),
        )

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.cat([self.one(x).flatten(1), self.two(x).flatten(1)], 1))


@architecture("literal view", images(size=8))
class LiteralView(nn.Module):
    """The sizes of a view are literals in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = block(3, 16), block(16, 16), nn.Linear(16 * 64, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(self.stem(x)).view(-1, 16 * 64))


class Recurrent(nn.Module):
    """A recurrence between layers that can be made narrower."""

    def __init__(self, kind: Callable[..., nn.Module], *, both: bool = False) -> None:
        super().__init__()
        self.words, self.into = nn.Embedding(32, 24), nn.Linear(24, 32)
        self.recurrence = kind(32, 16, batch_first=True, bidirectional=both)
        self.wide, self.head = nn.Linear(32 if both else 16, 32), nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Any:
        y, _ = self.recurrence(torch.relu(self.into(self.words(ids))))
        return self.head(torch.relu(self.wide(y)))


architecture("GRU", tokens())(lambda: Recurrent(nn.GRU))
architecture("LSTM", tokens())(lambda: Recurrent(nn.LSTM))
architecture("GRU, both ways", tokens())(lambda: Recurrent(nn.GRU, both=True))


@architecture("cell by hand", tokens())
class Cell(nn.Module):
    """A gated cell, run step by step from zeros, whose width is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.words = 16, nn.Embedding(32, 24)
        self.gate, self.new, self.head = nn.Linear(40, 16), nn.Linear(40, 16), nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Any:
        words = self.words(ids)
        state = words.new_zeros(ids.shape[0], self.width)
        for step in words.unbind(1):
            both = torch.cat([step, state], -1)
            gate = torch.sigmoid(self.gate(both))
            state = gate * state + (1 - gate) * torch.tanh(self.new(both))
        return self.head(state)


@architecture("torch's cells", vectors(3, 5, 12))
class Cells(nn.Module):
    """Cells of two kinds, run step by step; the second reads the state of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.LSTMCell(12, 16),
            nn.GRUCell(16, 24),
            nn.Linear(24, 4),
        )

    def forward(self, x: Tensor) -> Any:
        first: Any = None
        second: Any = None
        for step in x.unbind(1):
            first = self.first(step, first)
            second = self.second(first[0], second)
        return self.head(second)


@architecture("branch by value", images())
class BranchByValue(nn.Module):
    """The values decide which layer runs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bright, self.dark, self.body, self.head = (
            block(3, 16),
            block(16, 16),
            block(16, 16),
            block(16, 32),
            nn.Linear(32, 4),
        )

    def forward(self, x: Tensor) -> Any:
        y = self.stem(x)
        y = self.bright(y) if float(x.mean()) > 0 else self.dark(y)
        return self.head(self.body(torch.relu(y)).mean((2, 3)))


@architecture("loop by value", ROWS)
class LoopByValue(nn.Module):
    """The values decide how often a layer runs."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.again, self.head = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Any:
        y = torch.relu(self.into(x))
        for _ in range(1 + int(x[0, 0] > 0)):
            y = y + torch.relu(self.again(y))
        return self.head(y)


@architecture("weight norm", ROWS)
def weight_norm() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 32),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(32, 32)),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )


@architecture("spectral norm", images())
def spectral_norm() -> nn.Module:
    normed = parametrizations.spectral_norm(nn.Conv2d(16, 16, 3))
    return nn.Sequential(
        block(3, 16),
        normed,
        nn.ReLU(),
        block(16, 32),
        block(32, 16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


@architecture("shared layer", images())
class SharedLayer(nn.Module):
    """One layer is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again, self.last = block(3, 16), block(16, 16), block(16, 24)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.again(functional.max_pool2d(self.again(self.stem(x)), 2))).amax(
            (2, 3)
        )


@architecture("siamese", lambda: (torch.randn(3, 12), torch.randn(3, 12)))
class Siamese(nn.Module):
    """Two inputs through the same layers, compared by cosine similarity."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, one: Tensor, other: Tensor) -> Any:
        left, right = (functional.normalize(self.body(x), dim=-1) for x in (one, other))
        return left @ right.t()


@architecture("two heads, a dict", images())
class TwoHeads(nn.Module):
    """Outputs a dict of a feature map, classes and a string."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.side = block(3, 16), block(16, 32), nn.Conv2d(32, 4, 1)
        self.wide, self.classes = nn.Linear(32, 64), nn.Linear(64, 7)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.body(self.stem(x))
        return {
            "map": self.side(y),
            "classes": self.classes(torch.relu(self.wide(y.mean((2, 3))))),
            "kind": "two",
        }


@architecture("sums of embeddings", tokens())
class EmbeddingSums(nn.Module):
    """Token and position embeddings and a learned vector, added without a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.start = (
            nn.Embedding(32, 24),
            nn.Embedding(16, 24),
            nn.Parameter(torch.zeros(24)),
        )
        self.body, self.head = nn.Linear(24, 32), nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])) + self.start
        return self.head(torch.relu(self.body(x)).sum(1))


@architecture("hooked", ROWS)
def hooked() -> nn.Module:
    model = nn.Sequential(
        nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5)
    )
    model[2].register_forward_hook(_doubled)
    return model


def _doubled(layer: nn.Module, args: Any, output: Tensor) -> Tensor:
    return 2 * output


@architecture("constants beside", images(size=8))
class ConstantsBeside(nn.Module):
    """Constant coordinates concatenated to the channels, a buffer as scale, unfolded features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = block(3, 16), block(18, 16), nn.Linear(16 * 9, 6)
        self.register_buffer("scale", torch.rand(1, 16, 1, 1) + 0.5)
        self.scale: Tensor

    def forward(self, x: Tensor) -> Any:
        y = self.stem(x) * self.scale
        coordinates = torch.linspace(-1, 1, 8, dtype=x.dtype).expand(x.shape[0], 1, 8, 8)
        y = self.body(torch.cat([y, coordinates, coordinates.transpose(2, 3)], 1))
        return self.head(functional.unfold(y, 3, stride=3).mean(-1))


@architecture("low rank", ROWS)
class LowRank(nn.Module):
    """A layer with a low-rank pair of weights beside it, as in LoRA."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.down, self.up, self.head = (
            nn.Linear(12, 32),
            nn.Linear(12, 8, bias=False),
            nn.Linear(8, 32, bias=False),
            nn.Linear(32, 5),
        )

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.relu(self.line(x) + 0.5 * self.up(self.down(x))))


@architecture("written in place", ROWS)
class InPlace(nn.Module):
    """Halves are written into an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.wide, self.head = (
            nn.Linear(12, 16),
            nn.Linear(12, 16),
            nn.Linear(32, 64),
            nn.Linear(64, 5),
        )

    def forward(self, x: Tensor) -> Any:
        y = torch.empty(x.shape[0], 32, dtype=x.dtype)
        y[:, :16], y[:, 16:] = self.one(x), self.two(x)
        return self.head(self.wide(y).relu_())
