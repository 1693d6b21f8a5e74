"""Fusion of layers with what follows them: outputs are unchanged, each site is evaluated, reported
and switched by itself.
"""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import RecipeError, StoppedError
from paifuser_lab.fusion import evaluate, layers, mkl, onednn
from paifuser_lab.fusion.activation import Bound
from paifuser_lab.fusion.blocks import FusedBlock
from paifuser_lab.fusion.layers import FusedLayer
from paifuser_lab.machine import threads
from paifuser_lab.measure import output_error
from paifuser_lab.model.watch import watching
from paifuser_lab.model.weights import weights_hash
from tests.support.fusing_models import (
    ACTS,
    BACKENDS,
    BLOCKS,
    EXACT,
    FUSIBLE,
    Block,
    fused,
    patterns,
    preferring,
)
from tests.support.models import Small, enliven, images

pytestmark = pytest.mark.usefixtures("one_thread", "always_quicker")


@settings(max_examples=25, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_any_fused_network_has_the_same_output(
    blocks: list[Block], reused: bool, is_last: bool
) -> None:
    model = enliven(nn.Sequential(*blocks, *blocks[: int(reused)]))
    x = torch.randn(2, 8, 6, 6)
    variant = fused(model, x.contiguous(memory_format=torch.channels_last) if is_last else x)
    other = torch.randn(3, 8, 5, 7)
    with torch.no_grad():
        expected = model(other)
        output = variant.model(other)
    assert output_error(expected, output)[0] < EXACT
    assert output.stride() == expected.stride()


@pytest.mark.parametrize(("kind", "pattern"), FUSIBLE.items())
def test_each_kind_of_block_is_fused_where_possible(kind: str, pattern: str) -> None:
    assert (
        patterns(fused(enliven(Block(kind, 8)), torch.randn(1, 8, 6, 6))).get("conv", "") == pattern
    )


def test_a_sum_around_a_sequence_is_fused_with_its_last_layer() -> None:
    variant = fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6))
    assert patterns(variant) == {
        "body.0": "1×1 convolution + relu",
        "body.2": "1×1 convolution + residual",
    }
    seen: dict[str, Any] = {}
    with (
        torch.no_grad(),
        watching(
            variant.module,
            lambda layer, args, kwargs: seen.update({layer: kwargs}),
            lambda *left: None,
        ),
    ):
        variant.model(torch.randn(1, 8, 6, 6))
    assert seen["body.2"]["residual"].shape == (1, 8, 6, 6)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(list(ACTS)),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(3, 16), (2, 3, 16), (16,)]),
    st.sampled_from(BACKENDS),
)
def test_linear_layers_are_fused_with_what_follows(
    act: str, bias: bool, has_residual: bool, shape: tuple[int, ...], backend: str
) -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.act, self.two = (
                nn.Linear(16, 24, bias),
                ACTS[act](),
                nn.Linear(24, 16, not bias),
            )

        def forward(self, x: Tensor) -> Tensor:
            y = self.two(self.act(self.one(x)))
            return x + y if has_residual else y

    with preferring(backend):
        variant = fused(Mlp(), torch.randn(shape))
    if len(shape) > 1:
        known = "" if act == "softplus" else f" + {act.removesuffix(' in place')}"
        assert patterns(variant) == {
            "one": f"linear{known}",
            "two": "linear + residual" if has_residual else "linear",
        }
        assert variant.fusions is not None and {
            fusion.runs for fusion in variant.fusions.fused
        } == {backend}
        with torch.no_grad():
            for other in (torch.randn(7, 16), torch.randn(2, 2, 3, 16), torch.randn(2, 16, 3).mT):
                assert output_error(variant.work.model(other), variant.model(other))[0] < EXACT


ZOO = {
    "resnet18-tiny": 21,
    "mobilenetv2-tiny": 26,
    "convnext-t-tiny": 20,
    "vit-s-tiny": 10,
    "bert-base-tiny": 13,
    "swin-t-tiny": 28,
}


@pytest.mark.parametrize(("name", "count"), ZOO.items())
def test_models_of_the_zoo_have_the_same_output_with_every_site_fused(
    name: str, count: int
) -> None:
    work = lab.load(name)
    variant = lab.apply(work, Recipe(["fuse"]))
    assert (
        variant.reports[-1].relative_error is not None
        and variant.reports[-1].relative_error < EXACT
    )
    assert variant.fusions is not None and len(variant.fusions.fused) == count
    names = " ".join(patterns(variant).values())
    pattern = {
        "resnet18-tiny": "batch-norm + residual + relu",
        "mobilenetv2-tiny": "depthwise convolution + batch-norm + relu6",
    }
    assert pattern.get(name, "linear + gelu") in names
    assert all(
        fusion.error is not None and fusion.error < EXACT for fusion in variant.fusions.fused
    )


def test_models_of_transformers_are_fused_too() -> None:
    import transformers as hf

    small = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    swin = hf.SwinConfig(
        image_size=56, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=7
    )
    tokens = {
        "input_ids": torch.randint(0, 50, (1, 8)),
        "attention_mask": torch.ones(1, 8, dtype=torch.long),
    }
    cases = {
        "swin": (hf.SwinModel(swin), torch.randn(1, 3, 56, 56)),
        "vit": (
            hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=8, **small)),
            torch.randn(1, 3, 16, 16),
        ),
        "bert": (hf.BertModel(hf.BertConfig(vocab_size=50, **small)), tokens),
    }
    for name, (model, inputs) in cases.items():
        pattern_names = patterns(fused(model, inputs))
        assert "linear + gelu" in pattern_names.values(), name
        assert name == "swin" or "linear + residual" in pattern_names.values(), name


def test_a_site_is_switched_off_and_on_by_itself(always_quicker: list[Any]) -> None:
    work = Workload(enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6))
    recipe = Recipe(["fuse"])
    assert set(patterns(lab.apply(work, recipe))) == {"conv"}
    off = recipe.with_step({"fuse": {"off": ["conv"]}})
    assert len(off) == 1 and off.label == "fuse · 1 off"
    variant = lab.apply(work, off)
    assert patterns(variant) == {} and variant.fusions is not None
    site = variant.fusions.at("act")
    assert site is not None and (site.standing, site.speedup) == ("off", 2.0)
    assert not any(
        isinstance(module, FusedLayer | FusedBlock) for module in variant.module.modules()
    )
    on = off.with_step({"fuse": {"on": ["conv"]}})
    assert on.steps[0].options == {"on": ["conv"]} and set(patterns(lab.apply(work, on))) == {
        "conv"
    }
    assert on.with_step({"fuse": {"off": ["conv"]}}) == off
    assert len(always_quicker) == 1, "what was timed is not timed again when it is switched"


def test_only_the_named_layers_are_fused() -> None:
    work = lab.load("mobilenetv2-tiny")
    variant = lab.apply(
        work, Recipe([{"fuse": {"layers": ["blocks.*.depthwise.0"], "off": ["blocks.0.*"]}}])
    )
    assert set(patterns(variant)) == {f"blocks.{index}.depthwise.0" for index in range(1, 8)}
    with pytest.raises(RecipeError, match=r"pattern 'blokcs\.1' matches no layer"):
        lab.apply(work, Recipe([{"fuse": {"off": ["blokcs.1"]}}]))
    with pytest.raises(RecipeError, match=r"'stem\.0' is both on and off"):
        Recipe([{"fuse": {"off": ["stem.0"], "on": ["stem.0"]}}])


def test_a_site_that_is_slower_fused_stays_unfused_unless_switched_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        evaluate, "timed", lambda calls, device: dict.fromkeys(calls, 1.2) | {"apart": 1.0}
    )
    model, x = enliven(Block("plain", 8)), torch.randn(1, 8, 6, 6)
    variant = fused(model, x)
    site = variant.fusions and variant.fusions.at("conv")
    assert site is not None and (site.standing, site.runs, site.apart_ms, site.fused_ms) == (
        "slower",
        "",
        1.0,
        1.2,
    )
    assert set(patterns(fused(model, x, on=["conv"]))) == {"conv"}
    monkeypatch.setattr(
        evaluate, "timed", lambda calls, device: dict.fromkeys(calls, 0.99) | {"apart": 1.0}
    )
    assert set(patterns(fused(model, x))) == {"conv"}


def test_the_whole_model_is_timed_and_reported_if_it_is_not_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Workload(enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6))
    fusions = lab.fusions(work)
    assert (fusions.apart_ms, fusions.fused_ms) == (
        2.0,
        1.0,
    ) and "; the whole 2.00 × as fast." in fusions.summary
    calls = {}

    def slower(candidates: Any, device: torch.device) -> dict[str, float]:
        calls.update(candidates)
        return dict.fromkeys(candidates, 1.0) | {"as one": 1.5}

    monkeypatch.setattr(evaluate, "timed", slower)
    assert lab.fusions(work).apart_ms == 2.0, "what was timed is not timed again"
    work = Workload(work.model, work.inputs.args[0])
    variant = lab.apply(work, Recipe([{"fuse": {"on": ["conv"]}}]))
    assert variant.fusions is not None and variant.fusions.summary.endswith(
        "; the whole 0.67 × as fast."
    )
    kinds = []
    for name in ("apart", "as one", "apart"):
        calls[name]()
        kinds.append(isinstance(variant.module.conv, FusedLayer))
    assert kinds == [False, True, False]
    fusions = lab.apply(work, Recipe([{"fuse": {"off": ["*"]}}])).fusions
    assert fusions is not None and fusions.apart_ms is None and fusions.whole == ""


def test_the_whole_model_is_timed_again_in_another_form_or_with_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wholes: list[Any] = []

    def timed(calls: Any, device: torch.device) -> dict[str, float]:
        wholes.extend([calls] if evaluate.AS_ONE in calls else [])
        return dict.fromkeys(calls, 1.0) | {evaluate.APART: 2.0}

    monkeypatch.setattr(evaluate, "timed", timed)
    work = Workload(enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6))
    for steps in (["fuse"], ["layout", "fuse"], [{"fuse": {"on": ["conv"]}}]):
        assert set(patterns(lab.apply(work, Recipe(steps)))) == {"conv"}
    assert len(wholes) == 2, "the third is as the first"
    with threads(2):
        lab.fusions(work)
        assert len(wholes) == 3
        with torch.no_grad():
            work.model.conv.weight.neg_()
        lab.fusions(work)
    assert len(wholes) == 4, "what it computes is another"


def test_equal_sites_are_timed_once(always_quicker: list[Any]) -> None:
    lab.apply(lab.load("vit-s-tiny"), Recipe(["fuse"]))
    assert len(always_quicker) == 6, "patches, qkv, project, the two of the perceptron, head"


@pytest.mark.skipif(not torch._C.has_mkl, reason="torch was built without MKL here")
def test_the_fastest_backend_is_saved_and_another_replaces_a_missing_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = lab.load("vit-s-tiny")
    with preferring("MKL"):
        variant = lab.apply(work, Recipe(["fuse"]))
    assert variant.fusions is not None
    assert {
        fusion.runs for fusion in variant.fusions.fused if fusion.pattern.startswith("linear")
    } == {"MKL"}
    assert {
        fusion.runs for fusion in variant.fusions.fused if fusion.pattern.startswith("conv")
    } == {"oneDNN"}
    folder = variant.save(tmp_path / "kept")
    with torch.no_grad():
        expected = work.inputs.clone()(variant.model)
        for model in (
            copy.deepcopy(variant.module),
            pickle.loads(pickle.dumps(variant.module)),
            lab.Variant.load(folder).model,
        ):
            assert operators(model, work) == {
                "mkl::_mkl_linear": 9,
                "mkldnn::_convolution_pointwise": 1,
            }
            assert torch.equal(work.inputs.clone()(model), expected)
        monkeypatch.setattr(mkl, "name_for", lambda layer, dtype, **how: "")
        elsewhere = lab.Variant.load(folder).model
        assert output_error(expected, work.inputs.clone()(elsewhere))[0] < EXACT
        assert set(operators(elsewhere, work)) == {
            "mkldnn::_linear_pointwise",
            "mkldnn::_convolution_pointwise",
        }


def operators(model: nn.Module, work: Workload) -> Counter[str]:
    """The number of calls of each fused oneDNN or MKL operator."""
    with torch.autograd.profiler.profile() as profiled:
        work.inputs.clone()(model)
    names = (event.name() for event in profiled.kineto_results.events())
    return Counter(name for name in names if name.startswith("mkl") and "reorder" not in name)


def broken_by(bind: Callable[..., Bound]) -> Callable[..., Bound]:
    """A broken bind: its outputs are 1 % too large."""

    def bound(*args: Any, **options: Any) -> Bound:
        call = bind(*args, **options)
        return lambda x, residual: call(x, residual) * 1.01

    return bound


@pytest.mark.parametrize("broken", ["run", "rewritten"])
def test_a_fusion_whose_output_differs_is_rejected(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paifuser_lab.fusion import blocks

    if broken == "run":
        for backend in (onednn, mkl):
            monkeypatch.setattr(backend, "bind", broken_by(backend.bind))
        reason = "its output differs by "
    else:
        whole, worse = blocks.rewritten, lambda run: lambda *tensors: run(*tensors) * 1.01
        monkeypatch.setattr(blocks, "rewritten", lambda *args: worse(whole(*args)))
        reason = "with its block rewritten, its output differs by "
    variant = fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6))
    assert variant.fusions is not None and patterns(variant) == {}
    assert all(
        fusion.reason.startswith(reason)
        for fusion in variant.fusions.fusions
        if fusion.place.startswith("body")
    )


def test_a_site_whose_operator_fails_stays_unfused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any, **options: Any) -> Bound:
        raise RuntimeError("no such thing\nat all")

    for backend in (onednn, mkl):
        monkeypatch.setattr(backend, "bind", refuse)
    variant = fused(Small(), images())
    assert variant.fusions is not None
    assert {fusion.reason for fusion in variant.fusions.fusions} == {
        "its fused operator fails (no such thing)"
    }


class Odd(nn.Module):
    """Layers that cannot be fused, each for another reason."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 4, 1)
        self.circle = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
        self.weighed = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1))
        self.hooked = nn.Conv2d(4, 4, 1)
        self.hooked.register_forward_hook(lambda module, args, answer: answer * 2)
        self.idle = nn.Linear(4, 4)
        self.same = nn.Conv2d(4, 4, 3, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.up, self.circle, self.weighed, self.hooked, self.same):
            x = torch.relu(layer(x))
        return x


def test_layers_that_cannot_be_fused_are_reported_with_the_reason() -> None:
    variant = fused(Odd(), torch.randn(1, 4, 5, 5))
    assert variant.fusions is not None
    standings = {
        fusion.place: (fusion.standing, fusion.reason) for fusion in variant.fusions.fusions
    }
    assert standings.pop("hooked") == ("fused", "what follows is not fused: it has hooks")
    assert {standing for standing, _ in standings.values()} == {"apart"}
    assert {site: reason for site, (_, reason) in standings.items()} == {
        "up": "fusing ConvTranspose2d is not supported",
        "circle": "its padding is not a number of zeros",
        "weighed": "fusing ParametrizedConv2d is not supported",
        "idle": "it is not called on the example inputs",
        "same": "its padding is not a number of zeros",
    }
    assert "weights packed for the processor take 64 B beside the weights" in variant.notes
    assert any(
        "'up' stays apart: fusing ConvTranspose2d is not supported" in note
        for note in variant.notes
    )


def test_a_sum_with_a_broadcast_operand_is_correct_for_every_batch_size() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.places = nn.Linear(4, 4), nn.Parameter(torch.randn(1, 3, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x) + self.places

    model = Placed()
    variant = fused(model, torch.randn(1, 3, 4))
    assert patterns(variant) == {"line": "linear + residual"}
    x = torch.randn(5, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(variant.model(x), model(x))


def test_other_steps_precede_fuse_and_are_inserted_there() -> None:
    recipe = (
        Recipe(["fuse", {"backend": {"name": "eager"}}])
        .with_step({"prune": {"ratio": 0.5}})
        .with_step("layout")
    )
    assert [step.kind for step in recipe] == ["prune", "layout", "fuse", "backend"]
    with pytest.raises(
        RecipeError,
        match="'fuse' stands before 'prune', which changes layers; put 'prune' before it",
    ):
        Recipe(["fuse", {"prune": {"ratio": 0.5}}])
    work = lab.load("resnet18-tiny")
    variant = lab.apply(work, Recipe([{"prune": {"ratio": 0.5}}, "layout", "fuse"]))
    assert variant.fusions is not None and len(variant.fusions.fused) == 21


def test_sites_unfused_for_one_reason_are_reported_in_one_note() -> None:
    variant = lab.apply(
        lab.load("vit-s-tiny"), Recipe([{"precision": {"default": "int8"}}, "fuse"])
    )
    standings = [note for note in variant.notes if "apart: it computes in int8" in note]
    assert len(standings) == 1 and " more stay apart: " in standings[0]


def test_fusing_polls_should_stop() -> None:
    work = lab.load("vit-s-tiny")
    with pytest.raises(StoppedError, match="was stopped while sites were timed"):
        lab.apply(work, Recipe(["fuse"]), should_stop=lambda: True)


def test_a_layer_that_is_called_with_its_input_by_name_is_fused_too() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.line, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.conv(x)).mean((2, 3))
            return self.head(input=torch.relu(self.line(input=y)))

    model, x = Named().eval(), torch.randn(2, 3, 6, 6)
    expected = {"conv": "convolution + relu", "line": "linear + relu", "head": "linear"}
    fusions = lab.fusions(Workload(model, x))
    assert {fusion.place: fusion.pattern for fusion in fusions.fused} == expected
    assert patterns(fused(model, x)) == expected


def test_lab_fusions_changes_nothing() -> None:
    work = lab.load("resnet18-tiny")
    before = weights_hash(work.model)
    fusions = lab.fusions(work)
    saved_ms = sum(site.apart_ms - site.fused_ms for site in fusions.fused)
    assert len(fusions.fused) == 21 and saved_ms == pytest.approx(21.0)
    assert weights_hash(work.model) == before and not any(
        isinstance(module, FusedLayer) for module in work.model.modules()
    )
    assert lab.apply(work, Recipe(["fold"])).fusions is None


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bf16 on this processor"
)
@pytest.mark.parametrize("recipe", [["fuse"], ["fold", "layout", "fuse"]])
def test_layers_of_a_model_cast_at_its_boundary_get_the_cast_inputs(
    recipe: list[str],
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(3, 8, 3), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.conv(x))

    work = Workload(Net(), torch.randn(1, 3, 8, 8))
    steps = [*recipe[:-1], {"precision": {"default": "bf16"}}, "fuse"]
    variant = lab.apply(work, Recipe(steps))
    assert (
        patterns(variant) == {"conv": "convolution + relu"}
        and variant.reports[-1].relative_error < 0.02
    )


def test_packed_weights_are_counted_in_memory() -> None:
    work = Workload(nn.Sequential(nn.Linear(256, 256), nn.ReLU()), torch.randn(2, 256))
    comparison = lab.compare(
        work,
        lab.apply(work, Recipe(["fold"])),
        lab.apply(work, Recipe(["fuse"])),
        rounds=1,
        seconds=0.05,
    )
    apart, fused = (
        next(row for row in comparison.rows if row.name == name).peak_bytes
        for name in ("fold batch-norm", "fuse")
    )
    assert apart is not None and fused is not None and fused - apart > 0.99 * 256 * 256 * 4


@pytest.mark.parametrize(
    ("layer", "residual", "activation", "name"),
    [
        (nn.Linear(16, 8), False, "gelu", "CUDA pointwise"),
        (nn.Linear(16, 8), True, "none", "CUDA pointwise"),
        (nn.Linear(16, 8), False, "none", ""),
        (nn.Linear(16, 8), False, "tanh", ""),
        (nn.Linear(10, 8), False, "relu", ""),
        (nn.Conv2d(16, 8, 1), True, "relu", "CUDA pointwise"),
        (nn.Conv2d(16, 8, 1, stride=2), True, "relu", ""),
        (nn.Conv2d(8, 8, 3, 2, 1, groups=8), False, "relu6", "CUDA depthwise"),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), True, "none", "CUDA depthwise"),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), True, "relu", ""),
        (nn.Conv2d(16, 16, 3, groups=4), False, "relu", ""),
        (nn.Conv2d(8, 8, 3), False, "relu", ""),
    ],
)
def test_the_cuda_kernels_support_these_layers(
    layer: nn.Module, residual: bool, activation: str, name: str
) -> None:
    from paifuser_lab.fusion import cuda

    layer = layer.bfloat16()
    options: Any = {"has_residual": residual, "activation": activation}
    assert cuda.name_for(layer, torch.bfloat16, **options) == name
    assert cuda.name_for(layer, torch.float32, **options) == ""
    if name:
        shape = (
            (2, 16)
            if isinstance(layer, nn.Linear)
            else (1, layer.weight.shape[1] * getattr(layer, "groups", 1), 6, 6)
        )
        x = torch.randn(shape).bfloat16()
        layers.make_fused(layer)
        with torch.no_grad():
            addend = torch.randn(layers.output_shape(layer, x)).bfloat16() if residual else None
            expected = layer.composed(x, addend, activation)
            assert expected.shape == layers.output_shape(layer, x)
            run = cuda.bind(layer, layer.weight, layer.weight, x, activation, has_residual=residual)
            torch.testing.assert_close(run(x, addend), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(8, 16, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)],
    ids=["1×1", "depthwise"],
)
def test_outputs_of_the_cuda_kernels_have_the_memory_format_of_torchs(
    layer: nn.Module, order: torch.memory_format
) -> None:
    from paifuser_lab.fusion import cuda

    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=order)
    run = cuda.bind(layer, layer.weight, layer.weight, x, "relu", has_residual=False)
    with torch.no_grad():
        output, wanted = run(x, None), torch.relu(layer(x))
    assert output.stride() == wanted.stride()
    torch.testing.assert_close(output, wanted)


def test_a_layer_with_its_own_format_stays_unfused():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
    work = lab.Workload(model, torch.randn(1, 3, 8, 8), name="small")
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"3": "bf16"}}}, "fuse"]))
    assert variant.fusions.at("3").reason.startswith("a hook changes its input")
