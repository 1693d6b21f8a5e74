"""Matrix products that a forward calls as functions: they are found and fused with what follows;
what is not fused is noted.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.fusion import evaluate
from paifuser_lab.fusion.product_call import product_backends, run_product
from tests.support.fusing_models import fused, patterns

pytestmark = pytest.mark.usefixtures("one_thread", "always_quicker")


class Written(nn.Module):
    """A forward that calls a given function, with weights of its own."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.weight, self.bias = nn.Parameter(torch.randn(12, 8)), nn.Parameter(torch.randn(12))
        self.other = nn.Parameter(torch.randn(8, 12))
        self.act, self.drop = nn.ReLU(), nn.Dropout()
        self.register_buffer("shift", torch.randn(12))

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)


class Scored(nn.Module):
    """relu(x @ yᵀ + 0.5), of two inputs."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x @ y.T + 0.5)


class Operators(TorchDispatchMode):
    """Records the operators that compute something; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (
            torch.ops.aten.t.default,
            torch.ops.aten.permute.default,
            torch.ops.aten.detach.default,
        ):
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


FUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a number": (lambda m, x: torch.relu(x @ m.other + 0.5), "matrix product + sum + relu"),
    "a number before": (
        lambda m, x: torch.relu(1 + torch.matmul(x, m.other)),
        "matrix product + sum + relu",
    ),
    "a bias": (lambda m, x: F.gelu(x.mm(m.other) + m.bias), "matrix product + sum + gelu"),
    "a buffer, in place": (
        lambda m, x: (x @ m.other).add_(m.shift).relu_(),
        "matrix product + sum + relu",
    ),
    "a sum alone": (lambda m, x: x @ m.other + m.bias, "matrix product + sum"),
    "a linear function": (
        lambda m, x: F.relu(F.linear(x, m.weight, m.bias)),
        "matrix product + relu",
    ),
    "without a bias": (lambda m, x: F.silu(F.linear(x, weight=m.weight)), "matrix product + silu"),
    "by name": (
        lambda m, x: torch.tanh(F.linear(x, m.weight, bias=m.bias)),
        "matrix product + tanh",
    ),
    "an activation layer": (
        lambda m, x: m.act(m.drop(F.linear(x, m.weight, m.bias))),
        "matrix product + relu",
    ),
    "addmm": (
        lambda m, x: torch.sigmoid(torch.addmm(m.bias, x, m.other)),
        "matrix product + sigmoid",
    ),
    "turned": (
        lambda m, x: torch.relu(x @ m.weight.transpose(0, 1) + m.bias),
        "matrix product + sum + relu",
    ),
}
APART: dict[str, Callable[..., Any]] = {
    "nothing follows": lambda m, x: x @ m.other,
    "used elsewhere": lambda m, x: (lambda y: torch.relu(y) * y)(x @ m.other),
    "scaled sum": lambda m, x: torch.add(x @ m.other, m.bias, alpha=2) * 2,
    "scaled addmm": lambda m, x: torch.relu(torch.addmm(m.bias, x, m.other, alpha=2)) * 2,
    "a table": lambda m, x: x @ m.other + torch.ones(3, 12),
    "a column": lambda m, x: torch.relu(x @ m.other + x[:, :1]),
    "a batch of matrices": lambda m, x: torch.relu(x[:, None] @ m.other.expand(3, 8, 12)),
    "a vector": lambda m, x: torch.relu(x @ m.bias[:8]),
    "added into another": lambda m, x: (lambda y: (y.add_(x @ m.other), y)[1])(x @ m.other * 2),
}


@pytest.mark.parametrize("backend", ["oneDNN", "addmm"])
@pytest.mark.parametrize(("run", "pattern"), FUSED.values(), ids=FUSED)
def test_a_product_in_a_forward_is_fused_with_what_follows(
    run: Any, pattern: str, backend: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        evaluate,
        "timed",
        lambda calls, device: dict.fromkeys(calls, 2.0) | {"apart": 3.0, backend: 1.0},
    )
    variant = fused(Written(run), torch.randn(3, 8))
    assert list(patterns(variant).values()) == [pattern] and variant.fusions is not None
    fusion = variant.fusions.fused[0]
    assert (
        fusion.runs == backend
        and fusion.error is not None
        and fusion.error < 1e-5
        and fusion.place.endswith("()")
    )
    other, model = torch.randn(7, 8), Written(run).eval()
    with torch.no_grad():
        assert torch.allclose(variant.model(other), model(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("run", APART.values(), ids=APART)
def test_other_products_stay_unfused(run: Any) -> None:
    assert not patterns(fused(Written(run), torch.randn(3, 8)))


def test_a_product_with_a_number_and_relu_is_one_kernel() -> None:
    x, y = torch.randn(6, 16), torch.randn(10, 16)
    variant = fused(Scored(), x, y)
    assert patterns(variant) == {"matmul()": "matrix product + sum + relu"}
    with torch.no_grad():
        variant.model(x, y)
        with Operators() as seen:
            variant.model(x, y)
    assert seen.names == ["mkldnn::_linear_pointwise"]
    assert variant.fusions is not None and variant.fusions.fused[0].error < 1e-6


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.randn(2, 5, 16), torch.randn(10, 16)),
        (torch.randn(6, 16).double(), torch.randn(10, 16).double()),
        (torch.arange(32).reshape(2, 16), torch.arange(48).reshape(3, 16)),
        (torch.zeros(0, 16), torch.randn(10, 16)),
        (torch.randn(6, 16).bfloat16(), torch.randn(10, 16).bfloat16()),
        (torch.randn(16, 6).t(), torch.randn(16, 10).t()),
    ],
    ids=["more dimensions", "double", "integers", "empty", "bf16", "turned"],
)
def test_other_operands_have_the_models_output(x: Tensor, y: Tensor) -> None:
    model = fused(Scored(), torch.randn(6, 16), torch.randn(10, 16)).model
    with torch.no_grad():
        output, expected = model(x, y), Scored()(x, y)
    assert output.dtype == expected.dtype
    assert torch.allclose(
        output, expected, rtol=1e-4, atol=0.1 if x.dtype is torch.bfloat16 else 1e-4
    )  # sums near 0 round by that
    with pytest.raises(RuntimeError):
        model(torch.randn(6, 16), torch.randn(10, 15))


def test_gradients_flow_through_the_unfused_forward() -> None:
    module = fused(Written(FUSED["a bias"][0]), torch.randn(3, 8)).module
    module(torch.randn(3, 8)).sum().backward()
    assert module.other.grad is not None and module.bias.grad is not None


def test_a_changed_weight_is_used_at_the_next_call() -> None:
    module, x = fused(Written(FUSED["a bias"][0]), torch.randn(3, 8)).module, torch.randn(3, 8)
    with torch.no_grad():
        before = module(x)
        module.other.mul_(2)
        module.bias.data += 1
        assert not torch.allclose(module(x), before)
        assert torch.allclose(module(x), module.run(module, x), rtol=1e-4, atol=1e-5)


def test_a_fused_product_is_copied_pickled_saved_and_loaded(tmp_path: Any) -> None:
    x, y = torch.randn(6, 16), torch.randn(10, 16)
    work = Workload(nn.Sequential(Doubled()), x)
    variant = lab.apply(work, Recipe(["fuse"]))
    assert patterns(variant) == {"0.linear()": "matrix product + relu"}
    with torch.no_grad():
        expected = variant.model(x)
        loaded = lab.Variant.load(variant.save(tmp_path / "kept"), work)
        for other in (
            copy.deepcopy(variant.module),
            pickle.loads(pickle.dumps(variant.module)),
            loaded.model,
        ):
            with Operators() as seen:
                assert torch.equal(other(x), expected)
            assert "mkldnn::_linear_pointwise" in seen.names
    assert loaded.fusions == variant.fusions and y is not None


class Doubled(nn.Module):
    """A linear function with a weight of its own, twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.linear(x, self.weight)) * 2


def test_a_product_is_switched_off_and_on_by_its_name() -> None:
    work = Workload(Scored(), (torch.randn(6, 16), torch.randn(10, 16)))
    off = lab.apply(work, Recipe([{"fuse": {"off": ["matmul()"]}}]))
    assert (
        patterns(off) == {} and off.fusions is not None and off.fusions.fusions[0].standing == "off"
    )
    assert patterns(lab.apply(work, Recipe(["fuse", {"fuse": {"off": ["matmul()"]}}]))) == {}
    assert set(
        patterns(
            lab.apply(work, Recipe([{"fuse": {"off": ["*"]}}, {"fuse": {"on": ["matmul()"]}}]))
        )
    ) == {"matmul()"}


def test_a_product_stays_unfused_if_it_is_slower_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        evaluate, "timed", lambda calls, device: dict.fromkeys(calls, 1.2) | {"apart": 1.0}
    )
    fusions = lab.fusions(Workload(Scored(), (torch.randn(6, 16), torch.randn(10, 16))))
    assert [fusion.standing for fusion in fusions.fusions] == ["slower"]
    monkeypatch.setattr(
        evaluate, "run_product", lambda *args, **options: run_product(*args, **options) + 1
    )
    fusions = lab.fusions(Workload(Scored(), (torch.randn(6, 16), torch.randn(10, 16))))
    assert [fusion.standing for fusion in fusions.fusions] == [
        "apart"
    ] and "differs by" in fusions.fusions[0].reason


def test_a_note_reports_functional_convolutions_and_the_alternative() -> None:
    fusions = lab.fusions(
        Workload(
            Written(lambda m, x: F.relu(F.conv2d(x, m.weight[:, :, None, None]))),
            torch.randn(1, 8, 4, 4),
        )
    )
    assert not fusions.fusions and any(
        "not fused: conv2d in the model's own forward" in note for note in fusions.notes
    )
    assert all("{name: inductor}" in note for note in fusions.notes)


EMPTY: dict[str, Callable[..., Any]] = {
    "elementwise": lambda m, x: x * 2 + 1,
    "not to be traced": lambda m, x: x * 2 if float(x.sum()) > -1e9 else x,
}


@pytest.mark.parametrize("run", EMPTY.values(), ids=EMPTY)
def test_a_map_without_sites_gives_the_reason_and_is_printed_drawn_and_shown(run: Any) -> None:
    work = Workload(Written(run), torch.randn(3, 8))
    fusions = lab.fusions(work)
    assert not fusions.fusions and fusions.notes
    for text in (str(fusions), fusions._repr_html_(), lab.apply(work, Recipe(["fuse"])).notes[-1]):
        assert "no layer and no matrix product of this model" in text and "inductor" in text
    assert fusions.at("x") is None and fusions.summary.startswith("0 of 0 places")


def test_on_cuda_a_sum_and_relu_are_cublaslt_s() -> None:
    device = type("Device", (), {"type": "cuda"})()
    x = type("Given", (), {"device": device, "dtype": torch.float16})()
    assert list(product_backends(x, has_bias=True, activation="relu")) == ["cuBLASLt", "addmm"]
    assert list(product_backends(x, has_bias=False, activation="relu")) == ["addmm"]
    assert list(product_backends(x, has_bias=True, activation="silu")) == ["addmm"]


def test_layers_and_products_of_one_block_are_both_fused() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one, self.weight, self.act = (
                nn.Linear(8, 8),
                nn.Parameter(torch.randn(8, 8)),
                nn.ReLU(),
            )

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.act(self.one(x) + torch.relu(x @ self.weight + 0.5))
            return torch.tanh(F.linear(hidden, self.weight))

    variant = fused(Mixed(), torch.randn(3, 8))
    assert patterns(variant) == {
        "one": "linear + residual",
        "matmul()": "matrix product + sum + relu",
        "linear()": "matrix product + tanh",
    }
