"""Networks to fuse, and checks of fused models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.fusion import evaluate
from paifuser_lab.fusion.blocks import FusedBlock
from paifuser_lab.fusion.layers import FusedLayer
from paifuser_lab.measure import output_error
from paifuser_lab.model.watch import watching
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.variant import Variant

EXACT = 1e-5
BACKENDS = ["oneDNN", *(["MKL"] if torch._C.has_mkl else [])]


def fused(model: nn.Module, *inputs: Any, **options: Any) -> Variant:
    """Fuse a model, and check that its output, weights and module names are unchanged."""
    model = model.eval()
    before, names = weights_hash(model), [name for name, _ in model.named_modules()]
    work = Workload(model, inputs[0] if len(inputs) == 1 else inputs)
    reference = work.output()
    variant = lab.apply(work, Recipe([{"fuse": options}]))
    with torch.no_grad():
        assert output_error(reference, work.inputs.clone()(variant.model))[0] < EXACT
        assert output_error(reference, work.output())[0] == 0
    assert weights_hash(model) == before
    assert [name for name, _ in variant.module.named_modules()] == names
    assert [
        type(layer).__name__
        for layer in model.modules()
        if isinstance(layer, FusedLayer | FusedBlock)
    ] == []
    return variant


@contextmanager
def preferring(way: str) -> Iterator[None]:
    """Make this way the fastest wherever it is available."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evaluate,
            "timed",
            lambda calls, device: dict.fromkeys(calls, 2.0) | {"apart": 3.0, way: 1.0},
        )
        yield


def patterns(variant: Variant) -> dict[str, str]:
    assert variant.fusions is not None
    return {fusion.place: fusion.pattern for fusion in variant.fusions.fused}


class Block(nn.Module):
    """A random block of a network; `kind` decides how its layers are connected."""

    def __init__(
        self, kind: str, width: int, act: str = "relu", *, bias: bool = True, groups: int = 1
    ) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=bias, groups=groups)
        self.norm = nn.BatchNorm2d(width)
        self.other = nn.Conv2d(width, width, 1, bias=not bias)
        self.act = ACTS[act]()
        self.drop = nn.Dropout(0.4)
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 1), ACTS[act](), nn.Conv2d(width, width, 1, bias=bias)
        )

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "plain":
                return self.act(self.norm(self.conv(x)))
            case "functional":
                return F.relu(self.conv(x))
            case "method":
                return self.conv(x).relu_()
            case "clamped":
                return torch.clamp(self.conv(x), 0, 6)
            case "residual":
                return self.act(self.norm(self.conv(x)) + x)
            case "residual before":
                return self.act(x + self.drop(self.conv(x)))
            case "in place":
                out = self.conv(x)
                out += x
                return F.relu(out, inplace=True)
            case "into the other":
                y = self.other(x)
                y += self.conv(x)
                return y * y
            case "two branches":
                return torch.relu(self.conv(x) + self.other(x))
            case "around a sequence":
                return x + self.body(x)
            case "shared":
                return self.act(self.conv(self.act(self.other(x))))
            case "twice":
                return self.act(self.conv(self.act(self.conv(x))))
            case "used elsewhere":
                y = self.conv(x)
                return torch.relu(y) * y
            case "changed between":
                x = x.clone()
                y = self.conv(x)
                x.mul_(2)
                return y + x
            case "scalar":
                return self.conv(x) + 1
            case "weight":
                return torch.relu(self.conv(x) * self.other.weight.mean())
            case "twin":
                y = self.conv(x)
                return y + y
            case "branching":
                return torch.relu(self.conv(x)) if x.sum() > -1e9 else x
            case _:
                raise AssertionError(self.kind)


ACTS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU(approximate="tanh"),
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
}

# the fused pattern of `conv` by the kind of block
FUSIBLE = {
    "plain": "convolution + batch-norm + relu",
    "functional": "convolution + relu",
    "method": "convolution + relu",
    "clamped": "convolution + relu6",
    "residual": "convolution + batch-norm + residual + relu",
    "residual before": "convolution + residual + relu",
    "in place": "convolution + residual + relu",
    "into the other": "convolution",
    "two branches": "convolution + residual + relu",
    "around a sequence": "",
    "shared": "convolution + relu",
    "twice": "convolution",
    "used elsewhere": "convolution",
    "changed between": "convolution",
    "scalar": "convolution",
    "weight": "convolution",
    "twin": "convolution",
    "branching": "convolution",
}

BLOCKS = st.builds(
    lambda kind, act, bias, groups: Block(kind, 8, act, bias=bias, groups=groups),
    st.sampled_from(list(FUSIBLE)),
    st.sampled_from(list(ACTS)),
    st.booleans(),
    st.sampled_from([1, 4, 8]),
)


class Branch(nn.Module):
    """A model with every kind of attribute that may change after it was fused."""

    rate = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.one, self.act, self.two, self.drop = (
            nn.Linear(8, 16),
            nn.GELU(),
            nn.Linear(16, 8),
            nn.Dropout(0.5),
        )
        self.scale, self.powers, self.finish, self.extra = 1.0, (1, 2), torch.sigmoid, None

    def forward(self, x: Tensor) -> Tensor:
        y = self.finish(x + self.drop(self.two(self.act(self.one(x))))) * self.scale * self.rate
        y = y if self.extra is None else self.extra(y)
        return sum((y**power for power in self.powers), y)


def branch() -> nn.Module:
    torch.manual_seed(1)
    variant = fused(Branch(), torch.randn(2, 8))
    assert patterns(variant) == {"one": "linear + gelu", "two": "linear + residual"}
    return variant.module


def joined(module: nn.Module, x: Tensor) -> int:
    """How many layers are called with a fused residual or activation."""
    counted: list[Any] = []
    with (
        torch.no_grad(),
        watching(
            module,
            lambda layer, args, kwargs: counted.extend(kwargs.keys() & {"residual", "activation"}),
            lambda *left: None,
        ),
    ):
        module(x)
    return len(counted)


def doubled(module: nn.Module, given: Any, answer: Tensor) -> Tensor:
    return answer * 2
