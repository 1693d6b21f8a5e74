"""A profile: a row a layer, totals that add up, and a model that is left as it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Profile, Workload
from paifuser_lab.errors import MeasureError
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.profiler import alternatives
from paifuser_lab.profiler import layers as profiling
from paifuser_lab.profiler.alternatives import try_alternatives
from paifuser_lab.profiler.operators import watch_operators
from paifuser_lab.records import Ceiling
from tests.support.advised import paper
from tests.support.models import Branching, Counting, Mapped, Scribbling, Small, Tied, ids, images


def look(model: nn.Module, inputs: Any, **options: Any) -> Profile:
    return lab.profile(Workload(model, inputs), **({"runs": 2, "threads": 1} | options))


def line(width: int = 4) -> nn.Linear:
    return nn.Linear(width, width)


def x() -> Tensor:
    return torch.randn(2, 4)


def layers(profile: Profile) -> list[str]:
    return [row.layer for row in profile]


class Pair(nn.Module):
    """Two layers, and what happens between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = line(), line()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu() + 1)


class Adding(nn.Module):
    """Adds what its parts give: operators of its own between those of its layers."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + part(x) * self.scale
        return x


LEAVES = st.builds(
    lambda make: make(), st.sampled_from([line, nn.ReLU, lambda: nn.LayerNorm(4), nn.Identity])
)
TREES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(lambda ones: nn.Sequential(*ones)),
        st.lists(parts, max_size=3).map(Adding),
    ),
    max_leaves=8,
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES)
def test_a_container_is_the_sum_of_its_parts_and_its_own(model: nn.Module) -> None:
    profile = look(model, x(), runs=1)
    names = layers(profile)
    assert len(names) == len(set(names)) and names[0] == ""
    assert names == [row.layer for _, row in profile.walk()], "rows stand in the order of the tree"
    for row in profile:
        below = profile.children(row.layer)
        assert row.total_ms == pytest.approx(row.self_ms + sum(child.total_ms for child in below))
        assert row.total_flops == row.flops + sum(child.total_flops for child in below)
        assert row.total_macs == row.macs + sum(child.total_macs for child in below)
        assert row.total_bytes == row.moved_bytes + sum(child.total_bytes for child in below)
        assert row.total_parameters == row.parameters + sum(
            child.total_parameters for child in below
        )
        assert row.calls == (0 if row.kind == "ModuleList" else 1)
    assert profile.root.share == pytest.approx(1) or profile.total_ms == 0
    assert profile.root.total_parameters == sum(weight.numel() for weight in model.parameters())


def test_a_row_tells_what_ran() -> None:
    profile = look(Small(), images())
    assert layers(profile) == ["", "conv", "norm", "relu", "head"]
    row = profile["conv"]
    assert (row.kind, row.calls, row.output_shapes, row.dtype, row.weight_shape) == (
        "Conv2d", 1, ((2, 8, 6, 6),), "float32", (8, 3, 3, 3),
    )  # fmt: skip
    assert row.macs == 2 * 8 * 36 * 27 and row.parameters == 8 * 27 + 8
    assert row.peak_bytes is not None and row.peak_bytes >= 2 * 8 * 36 * 4
    assert (
        row.verdict in ("compute", "memory", "overhead")
        and row.intensity
        and row.gflops
        and row.gbs
    )
    assert profile["norm"].reads_from == ("conv",) and profile["head"].reads_from == ("",)
    assert profile.total_ms == pytest.approx(sum(row.self_ms for row in profile))
    assert len(profile.rounds_ms) == 2 and profile.threads == 1


def test_a_shared_layer_has_one_row_and_its_calls() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = line()
            self.other = self.one

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.one(x))

    profile = look(Shared(), x())
    assert layers(profile) == ["", "one"] and profile["one"].calls == 2
    assert profile["one"].macs == 2 * 2 * 16 and profile.root.total_parameters == 20


def test_outputs_may_be_dicts_and_models_may_branch() -> None:
    profile = look(Mapped(), {"ids": ids(), "mask": torch.ones(2, 5)})
    assert layers(profile) == ["", "table", "line"] and profile["table"].flops == 0
    assert profile.root.output_shapes[0] == (2, 5, 4)
    assert (
        look(Branching(), torch.randn(5, 4)).root.flops
        > look(Branching(), torch.randn(2, 4)).root.flops
    )


class Speaking(nn.Module):
    """Gives token after token."""

    def __init__(self) -> None:
        super().__init__()
        self.step = line()

    def forward(self, x: Tensor) -> Iterator[Tensor]:
        for _ in range(5):
            x = self.step(x).tanh()
            yield x


def test_a_generator_of_tokens_is_run_to_its_end() -> None:
    profile = look(Speaking(), x())
    assert profile["step"].calls == 5 and profile["step"].macs == 5 * 2 * 16
    assert "tanh" in profile.operators.loc[""].index
    assert look(Speaking(), x(), backward=True)["step"].backward_self_ms


def test_a_scripted_part_is_seen_and_left_as_it_was() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch deprecates scripting; models of today still hold such parts
        model = nn.Sequential(
            line(), torch.jit.script(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)))
        )
        before = weights_hash(model)
        profile = look(model, x())
    assert {"", "0", "1"} <= set(layers(profile)) and profile["1"].total_macs == 32
    assert weights_hash(model) == before and model.training


def test_an_encoder_keeps_its_fast_path_while_it_is_watched() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    profile = look(model, torch.randn(2, 5, 8))
    assert "_transformer_encoder_layer_fwd" in profile.operators.loc["layers.0"].index
    assert layers(profile) == ["", "layers", "layers.0", "layers.1"]
    assert profile["layers.0"].total_parameters == sum(
        weight.numel() for weight in model.layers[0].parameters()
    )


def test_conversions_at_a_layers_door_belong_to_the_layer() -> None:
    work = Workload(Pair(), x())
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"first": "bf16"}}}]))
    profile = lab.profile(variant, runs=2, threads=1)
    assert profile.operators.loc["first", "_to_copy"].calls == 2
    assert variant.model.first._forward_hooks and variant.model.first._forward_pre_hooks


def compiled(**options: Any) -> tuple[nn.Module, nn.Module]:
    class Parted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.part, self.after = (
                line(),
                torch.compile(Pair(), backend="eager", **options),
                line(),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.after(self.part(self.before(x)))

    model = Parted()
    return model, model.part


def test_a_compiled_part_is_one_row_and_stays_compiled() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    model, _ = compiled(fullgraph=True)
    work = Workload(model, x())
    work.output()
    graphs = counters["stats"]["unique_graphs"]
    profile = lab.profile(work, runs=2, threads=torch.get_num_threads())
    work.output()
    assert counters["stats"]["unique_graphs"] == graphs, "it was compiled anew"
    assert layers(profile) == ["", "before", "part", "after"]
    assert profile["part"].macs == 2 * 2 * 16 and profile["part"].total_parameters == 40
    torch._dynamo.reset()


def test_hundreds_of_layers_are_hundreds_of_rows() -> None:
    model = nn.Sequential(*(nn.Sequential(line(), nn.ReLU()) for _ in range(100)))
    profile = look(model, x(), runs=3)
    assert len(profile) == 1 + 3 * 100
    assert (
        len(str(profile).splitlines()) < 60
        and profile.root.macs == 0
        and profile.root.total_macs == 100 * 32
    )


def test_profiling_leaves_the_random_state_unchanged() -> None:
    work = Workload(Small(), images())
    before = torch.get_rng_state()
    lab.profile(work, runs=1, threads=1, backward=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "layer", [nn.Linear(64, 64), nn.Conv2d(16, 16, 3)], ids=["linear", "convolution"]
)
@pytest.mark.parametrize("int8", [400.0, 110.0, None])
def test_int8_is_tried_on_a_layer_where_the_hardware_is_fast_in_it(
    layer: nn.Module, int8: float | None
) -> None:
    ceiling = Ceiling(threads=1, fp32_gflops=100, int8_gops=int8, bandwidth_gbs=10)
    machine = paper(ceiling)
    inputs = torch.rand(4, 64) if isinstance(layer, nn.Linear) else torch.rand(1, 16, 8, 8)
    model = nn.Sequential(layer)
    with torch.no_grad():
        seen = watch_operators(model, lambda: lambda: model(inputs), runs=1)
    tried = try_alternatives(model, seen, {"0": 1.0}, machine, inputs.device).get("0", ())
    steps = [trial.step for trial in tried]
    assert ({"precision": {"default": "int8"}} in steps) is (int8 == 400.0)
    assert all(trial.here_ms > 0 and trial.there_ms > 0 for trial in tried)


def test_a_layer_without_weights_is_tried_on_the_device_of_the_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices: list[str] = []

    def timed(call: Callable[[], Tensor], device: torch.device) -> float:
        devices.append(f"{device} {call().device}")
        return 1.0

    monkeypatch.setattr(alternatives, "timed_ms", timed)
    machine = paper(Ceiling(threads=1, fp32_gflops=100, bandwidth_gbs=10))
    model = nn.Sequential(nn.MaxPool2d(2))
    seen = watch_operators(model, lambda: lambda: model(images()), runs=1)
    tried = try_alternatives(model, seen, {"0": 1.0}, machine, torch.device("meta"))
    assert [trial.step for trial in tried["0"]] == [{"layout": {}}]
    assert set(devices) == {"meta meta"}


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize(
    ("name", "rate"), [("fp32", 1.0), ("bf16", 2.0), ("fp16", 4.0), ("int8", 8.0)]
)
def test_a_row_uses_the_rate_of_its_own_format(
    name: str, rate: float, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceiling = Ceiling(
        threads=1, fp32_gflops=1, bf16_gflops=2, fp16_gflops=4, int8_gops=8, bandwidth_gbs=1e9
    )
    machine = paper(ceiling)
    monkeypatch.setattr(profiling, "hardware", lambda: machine)
    options: dict[str, Any] = {"layers": {"0": name}} if is_alone else {"default": name}
    work = lab.apply(
        Workload(nn.Sequential(line(64)), torch.randn(8, 64)),
        lab.Recipe([{"precision": options}]),
    )
    row = lab.profile(work, runs=2, threads=1)["0"]
    assert row.flops > 0 and row.roof_ms == pytest.approx(row.flops / rate / 1e6, rel=1e-6)


def test_channels_last_is_reported_only_where_it_is_distinct() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1))
    assert not any(row.is_channels_last for row in look(model, images()))
    there = look(model, images().to(memory_format=torch.channels_last))
    assert there["0"].is_channels_last and not there["1"].is_channels_last


# Nothing stays.


def state(model: nn.Module) -> tuple[Any, ...]:
    hooks = [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    ]
    return (
        weights_hash(model),
        [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
        [weight.requires_grad for weight in model.parameters()],
        [module.training for module in model.modules()],
        [
            None if weight.grad is None else weight.grad.sum().item()
            for weight in model.parameters()
        ],
        hooks,
        [sorted(vars(module)) for module in model.modules()],
        nn.Module.__call__,
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )


LEFT: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "counting": lambda: (Counting(), x()),
    "rebinding": lambda: (Counting(rebinds=True), x()),
    "scribbling": lambda: (Scribbling(), x()),
    "normalising": lambda: (Small().train(), images(3)),
    "tied": lambda: (Tied(), ids()),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("backward", [False, True])
def test_a_model_is_left_unchanged(name: str, backward: bool) -> None:
    model, inputs = LEFT[name]()
    first = next(model.parameters())
    first.grad = torch.ones_like(first)
    if not backward:
        list(model.parameters())[-1].requires_grad_(requires_grad=False)
    copy, before = inputs.clone(), state(model)
    look(model, inputs, backward=backward)
    assert state(model) == before and torch.equal(inputs, copy)


class Stopping(nn.Module):
    """Raises when it is called for the nth time."""

    def __init__(self, error: BaseException, *, at: int = 1) -> None:
        super().__init__()
        self.line = line()
        self.error, self.left = error, at

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left <= 0:
            raise self.error
        return self.line(x)


@pytest.mark.parametrize("at", [1, 5])
def test_nothing_stays_when_it_is_interrupted_inside_a_layer(at: int) -> None:
    model = nn.Sequential(line(), Stopping(KeyboardInterrupt(), at=at))
    before = nn.Module.__call__
    with pytest.raises(KeyboardInterrupt):
        look(model, x(), runs=1)
    assert (
        nn.Module.__call__ is before
        and model.training
        and all(not module._forward_hooks for module in model.modules())
    )


def stop_after(rounds: int) -> Callable[[], bool]:
    rounds_left = iter(range(100))

    def ask() -> bool:
        if next(rounds_left) == rounds - 1:
            raise KeyboardInterrupt
        return False

    return ask


def test_what_was_measured_before_an_interruption_is_kept() -> None:
    profile = look(Pair(), x(), runs=50, should_stop=stop_after(3))
    assert (
        profile.is_interrupted and len(profile.rounds_ms) == 3 and "stopped early" in profile.title
    )
    assert layers(profile) == ["", "first", "second"] and profile["first"].macs == 32


def test_should_stop_ends_a_profile() -> None:
    profile = look(Pair(), x(), runs=50, should_stop=lambda: True)
    assert len(profile.rounds_ms) == 1 and not profile.is_interrupted


# Gradients.


def test_every_layer_with_weights_has_a_backward_time() -> None:
    model = Small()
    profile = look(model, images(3), backward=True)
    weighted = [row for row in profile if row.parameters]
    assert len(weighted) == 3 and all(
        row.backward_self_ms and row.backward_self_ms > 0 for row in weighted
    )
    total = profile.root.backward_total_ms
    assert total == pytest.approx(sum(row.backward_self_ms or 0.0 for row in profile))
    plain = look(model, images(3))
    assert plain["conv"].backward_self_ms is None
    assert "backward ms" in str(profile) and "backward ms" in profile._repr_html_()
    assert "backward ms" not in str(plain) + plain._repr_html_()


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = line()

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x).detach()


class Strict(nn.Module):
    """Runs, but not while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.line = line()

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError("no training here")
        return self.line(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (line().requires_grad_(requires_grad=False), "no weight that requires a gradient"),
        (Detached(), "depends on its weights"),
        (Strict(), "not a training step of it .no training here."),
    ],
    ids=["frozen", "detached", "fails in training"],
)
def test_gradients_that_cannot_be_computed_are_refused_with_a_reason(
    model: nn.Module, message: str
) -> None:
    with pytest.raises(MeasureError, match=message):
        look(model, x(), backward=True)
