"""Convolutional networks, each with one property."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.prune_zoo.architecture import architecture, images


def block(
    into: int, out: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """Convolution, batch-norm and ReLU."""
    conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU() if relu else nn.Identity())


class Head(nn.Module):
    """A body with a classifier."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x).mean((2, 3)))


class Residual(nn.Module):
    """x + f(x), with a projection where the width changes."""

    def __init__(self, into: int, out: int, inside: nn.Module) -> None:
        super().__init__()
        self.inside, self.skip = inside, nn.Identity() if into == out else nn.Conv2d(into, out, 1)

    def forward(self, x: Tensor) -> Any:
        return torch.relu(self.skip(x) + self.inside(x))


@architecture("plain", images())
def plain() -> nn.Module:
    return Head(nn.Sequential(block(3, 16), block(16, 32), block(32, 32)), 32)


@architecture("flattened", images(size=8))
def flattened() -> nn.Module:
    return nn.Sequential(
        block(3, 16),
        nn.MaxPool2d(2),
        block(16, 16),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
    )


@architecture("residual", images())
def residual() -> nn.Module:
    inside = [
        nn.Sequential(block(a, b), block(b, b, relu=False))
        for a, b in ((16, 16), (16, 32), (32, 32))
    ]
    parts = [
        Residual(a, b, branch)
        for (a, b), branch in zip(((16, 16), (16, 32), (32, 32)), inside, strict=True)
    ]
    return Head(nn.Sequential(block(3, 16), *parts), 32)


@architecture("bottleneck", images())
def bottleneck() -> nn.Module:
    inside = [
        nn.Sequential(block(32, 16, 1), block(16, 16), block(16, 32, 1, relu=False))
        for _ in range(2)
    ]
    return Head(nn.Sequential(block(3, 32), *(Residual(32, 32, branch) for branch in inside)), 32)


@architecture("zero-padded shortcut", images())
class PaddedShortcut(nn.Module):
    """The shortcut of a widening layer is padded with channels of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide, self.head = block(3, 16), block(16, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        return self.head((self.wide(x) + functional.pad(x, (0, 0, 0, 0, 8, 8))).mean((2, 3)))


@architecture("depthwise", images())
def depthwise() -> nn.Module:
    return Head(
        nn.Sequential(
            block(3, 16), block(16, 16, groups=16), block(16, 32, 1), block(32, 64, groups=32)
        ),
        64,
    )


@architecture("inverted residual", images())
def inverted_residual() -> nn.Module:
    inside = [
        nn.Sequential(block(16, 64, 1), block(64, 64, groups=64), block(64, 16, 1, relu=False))
        for _ in range(2)
    ]
    return Head(nn.Sequential(block(3, 16), *(Residual(16, 16, branch) for branch in inside)), 16)


@architecture("groups", images())
def in_groups() -> nn.Module:
    return Head(
        nn.Sequential(
            block(3, 32), block(32, 32, groups=4), block(32, 64, groups=16), block(64, 32, 1)
        ),
        32,
    )


@architecture("dense", images())
class Dense(nn.Module):
    """Every layer reads the outputs of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(16 + 8 * i), nn.ReLU(), nn.Conv2d(16 + 8 * i, 8, 3, padding=1)
            )
            for i in range(3)
        )
        self.head = nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(x.mean((2, 3)))


class C2f(nn.Module):
    """Half of the channels skip the bottlenecks, half pass through; all are concatenated."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.c = how, 16
        self.stem, self.into = block(3, 16), block(16, 32, 1)
        self.parts = nn.ModuleList(nn.Sequential(block(16, 16), block(16, 16)) for _ in range(2))
        self.out, self.head = block(64, 32, 1), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.into(self.stem(x))
        y = list(x.chunk(2, 1) if self.how == "chunk" else torch.split(x, [self.c, self.c], 1))
        for part in self.parts:
            y.append(y[-1] + part(y[-1]))
        return self.head(self.out(torch.cat(y, 1)).mean((2, 3)))


architecture("C2f by chunk", images())(lambda: C2f("chunk"))
architecture("C2f by split", images())(lambda: C2f("split"))


class SqueezeExcite(nn.Module):
    """A gate computed from all channels scales each of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, 8, 1), nn.Conv2d(8, width, 1)

    def forward(self, x: Tensor) -> Any:
        return x * torch.sigmoid(
            self.up(torch.relu(self.down(functional.adaptive_avg_pool2d(x, 1))))
        )


@architecture("squeeze and excite", images())
def squeeze_excite() -> nn.Module:
    return Head(nn.Sequential(block(3, 32), SqueezeExcite(32), block(32, 32)), 32)


@architecture("U-Net", images())
class UNet(nn.Module):
    """Down, up, and concatenation with the features of the same scale."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.up = block(3, 16), block(16, 32), nn.ConvTranspose2d(32, 16, 2, 2)
        self.three, self.last = block(32, 16), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Any:
        one = self.one(x)
        up = self.up(self.two(functional.max_pool2d(one, 2)))
        return self.last(self.three(torch.cat([one, up], 1)))


@architecture("feature pyramid", images())
class Pyramid(nn.Module):
    """Three scales, added from the coarsest to the finest; an output for each."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(block(a, b, stride=2) for a, b in ((3, 16), (16, 32), (32, 64)))
        self.side = nn.ModuleList(nn.Conv2d(width, 24, 1) for width in (16, 32, 64))
        self.heads = nn.ModuleList(nn.Conv2d(24, 6, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for down in self.down:
            x = down(x)
            features.append(x)
        y = self.side[2](features[2])
        outputs = [self.heads[2](y)]
        for i in (1, 0):
            y = self.side[i](features[i]) + functional.interpolate(
                y, scale_factor=2.0, mode="nearest"
            )
            outputs.append(self.heads[i](y))
        return outputs


@architecture("inception", images())
class Inception(nn.Module):
    """Four branches of different widths, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 16)
        self.branches = nn.ModuleList(
            [
                block(16, 8, 1),
                block(16, 16, 3),
                block(16, 24, 5),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), block(16, 8, 1)),
            ]
        )
        self.head = nn.Linear(56, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        return self.head(torch.cat([branch(x) for branch in self.branches], 1).mean((2, 3)))
