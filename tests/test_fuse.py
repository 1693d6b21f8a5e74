"""Layers and what follows them as one: the same answer everywhere, each place tried, told and switched by itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Small, enliven, images
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab import session as session_module
from paifuser_lab.errors import RecipeError, StepError, StoppedError
from paifuser_lab.fusing import Choice, fuse, judging, layers, onednn
from paifuser_lab.fusing.blocks import FusedBlock
from paifuser_lab.fusing.composing import composing
from paifuser_lab.fusing.layers import FusedLayer
from paifuser_lab.graph import observe
from paifuser_lab.locate import watching
from paifuser_lab.measure import flops, output_error
from paifuser_lab.session import Session
from paifuser_lab.variant import Variant
from paifuser_lab.weights import weights_hash

EXACT = 1e-5

pytestmark = pytest.mark.usefixtures("one_thread", "always_quicker")


@pytest.fixture
def always_quicker() -> Iterator[list[Any]]:
    """No wall time is taken: as one everything is twice as fast. What was timed is counted."""
    counted: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "timed", lambda apart, fused, device: counted.append(device) or (2.0, 1.0))
        yield counted


def fused(model: nn.Module, *inputs: Any, **options: Any) -> Variant:
    """Fuse a model, and check what must always hold."""
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
    assert [type(one).__name__ for one in model.modules() if isinstance(one, FusedLayer | FusedBlock)] == []
    return variant


def patterns(variant: Variant) -> dict[str, str]:
    assert variant.fusions is not None
    return {one.place: one.pattern for one in variant.fusions.fused}


class Block(nn.Module):
    """A random piece of a network; the drawn kind decides how its parts are joined."""

    def __init__(self, kind: str, width: int, act: str = "relu", *, bias: bool = True, groups: int = 1) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=bias, groups=groups)
        self.norm = nn.BatchNorm2d(width)
        self.other = nn.Conv2d(width, width, 1, bias=not bias)
        self.act = ACTS[act]()
        self.drop = nn.Dropout(0.4)
        self.body = nn.Sequential(nn.Conv2d(width, width, 1), ACTS[act](), nn.Conv2d(width, width, 1, bias=bias))

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
    "relu": nn.ReLU, "relu in place": lambda: nn.ReLU(inplace=True), "relu6": nn.ReLU6, "silu": nn.SiLU, "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU(approximate="tanh"), "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid,
    "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "softplus": nn.Softplus,
}  # fmt: skip
FUSIBLE = {  # what becomes of `conv` by the kind of block; the other layers are alone where nothing is said
    "plain": "convolution + batch-norm + relu", "functional": "convolution + relu", "method": "convolution + relu",
    "clamped": "convolution + relu6", "residual": "convolution + batch-norm + residual + relu",
    "residual before": "convolution + residual + relu", "in place": "convolution + residual + relu",
    "into the other": "convolution", "two branches": "convolution + residual + relu", "around a sequence": "",
    "shared": "convolution + relu", "twice": "convolution", "used elsewhere": "convolution", "changed between": "convolution",
    "scalar": "convolution", "weight": "convolution", "twin": "convolution", "branching": "convolution",
}  # fmt: skip
BLOCKS = st.builds(
    lambda kind, act, bias, groups: Block(kind, 8, act, bias=bias, groups=groups),
    st.sampled_from(list(FUSIBLE)), st.sampled_from(list(ACTS)), st.booleans(), st.sampled_from([1, 4, 8]),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_any_network_answers_the_same_as_one(blocks: list[Block], reused: bool, is_last: bool) -> None:
    model = enliven(nn.Sequential(*blocks, *blocks[: int(reused)]))
    x = torch.randn(2, 8, 6, 6)
    variant = fused(model, x.contiguous(memory_format=torch.channels_last) if is_last else x)
    other = torch.randn(3, 8, 5, 7)
    with torch.no_grad():
        wanted = model(other)
        got = variant.model(other)
    assert output_error(wanted, got)[0] < EXACT
    assert got.stride() == wanted.stride()


@pytest.mark.parametrize(("kind", "pattern"), FUSIBLE.items())
def test_each_kind_of_block_is_fused_where_it_can(kind: str, pattern: str) -> None:
    assert patterns(fused(enliven(Block(kind, 8)), torch.randn(1, 8, 6, 6))).get("conv", "") == pattern


def test_a_sum_around_a_sequence_is_given_to_its_last_layer() -> None:
    variant = fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6))
    assert patterns(variant) == {"body.0": "1×1 convolution + relu", "body.2": "1×1 convolution + residual"}
    seen: dict[str, Any] = {}
    with torch.no_grad(), watching(variant.module, lambda layer, args, kwargs: seen.update({layer: kwargs}), lambda *left: None):
        variant.model(torch.randn(1, 8, 6, 6))
    assert seen["body.2"]["residual"].shape == (1, 8, 6, 6)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(ACTS)), st.booleans(), st.booleans(), st.sampled_from([(3, 16), (2, 3, 16), (16,)]))
def test_linear_layers_are_one_with_what_follows(act: str, bias: bool, has_residual: bool, shape: tuple[int, ...]) -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.act, self.two = nn.Linear(16, 24, bias), ACTS[act](), nn.Linear(24, 16, not bias)

        def forward(self, x: Tensor) -> Tensor:
            y = self.two(self.act(self.one(x)))
            return x + y if has_residual else y

    variant = fused(Mlp(), torch.randn(shape))
    if len(shape) > 1:
        known = "" if act == "softplus" else f" + {act.removesuffix(' in place')}"
        assert patterns(variant) == {"one": f"linear{known}", "two": "linear + residual" if has_residual else "linear"}


ZOO = {
    "resnet18-tiny": 21,
    "mobilenetv2-tiny": 26,
    "convnext-t-tiny": 20,
    "vit-s-tiny": 10,
    "bert-base-tiny": 13,
    "swin-t-tiny": 28,
}


@pytest.mark.parametrize(("name", "count"), ZOO.items())
def test_models_of_the_zoo_answer_the_same_with_every_place_as_one(name: str, count: int) -> None:
    work = lab.load(name)
    variant = lab.apply(work, Recipe(["fuse"]))
    assert variant.reports[-1].relative_error is not None and variant.reports[-1].relative_error < EXACT
    assert variant.fusions is not None and len(variant.fusions.fused) == count
    found = " ".join(patterns(variant).values())
    wanted = {"resnet18-tiny": "batch-norm + residual + relu", "mobilenetv2-tiny": "depthwise convolution + batch-norm + relu6"}
    assert wanted.get(name, "linear + gelu") in found
    assert all(one.error is not None and one.error < EXACT for one in variant.fusions.fused)


def test_models_of_transformers_are_fused_too() -> None:
    import transformers as hf

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    swin = hf.SwinConfig(image_size=56, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=7)
    tokens = {"input_ids": torch.randint(0, 50, (1, 8)), "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    cases = {
        "swin": (hf.SwinModel(swin), torch.randn(1, 3, 56, 56)),
        "vit": (hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=8, **small)), torch.randn(1, 3, 16, 16)),
        "bert": (hf.BertModel(hf.BertConfig(vocab_size=50, **small)), tokens),
    }
    for name, (model, inputs) in cases.items():
        found = patterns(fused(model, inputs))
        assert "linear + gelu" in found.values(), name
        assert name == "swin" or "linear + residual" in found.values(), name


def test_a_place_is_switched_off_and_on_by_itself(always_quicker: list[Any]) -> None:
    work = Workload(enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6))
    recipe = Recipe(["fuse"])
    assert set(patterns(lab.apply(work, recipe))) == {"conv"}
    off = recipe.with_step({"fuse": {"off": ["conv"]}})
    assert len(off) == 1 and off.label == "fuse · 1 off"
    variant = lab.apply(work, off)
    assert patterns(variant) == {} and variant.fusions is not None
    place = variant.fusions.at("act")
    assert place is not None and (place.standing, place.speedup) == ("off", 2.0)
    assert not any(isinstance(one, FusedLayer | FusedBlock) for one in variant.module.modules())
    on = off.with_step({"fuse": {"on": ["conv"]}})
    assert on.steps[0].options == {"on": ["conv"]} and set(patterns(lab.apply(work, on))) == {"conv"}
    assert on.with_step({"fuse": {"off": ["conv"]}}) == off
    assert len(always_quicker) == 1, "what was timed is not timed again when it is switched"


def test_only_the_layers_that_are_asked_for_are_fused() -> None:
    work = lab.load("mobilenetv2-tiny")
    variant = lab.apply(work, Recipe([{"fuse": {"layers": ["blocks.*.depthwise.0"], "off": ["blocks.0.*"]}}]))
    assert set(patterns(variant)) == {f"blocks.{index}.depthwise.0" for index in range(1, 8)}
    with pytest.raises(RecipeError, match=r"pattern 'blokcs\.1' matches no layer"):
        lab.apply(work, Recipe([{"fuse": {"off": ["blokcs.1"]}}]))
    with pytest.raises(RecipeError, match=r"'stem\.0' is both on and off"):
        Recipe([{"fuse": {"off": ["stem.0"], "on": ["stem.0"]}}])


def test_what_is_slower_as_one_stays_apart_unless_it_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "timed", lambda apart, fused, device: (1.0, 1.2))
    model, x = enliven(Block("plain", 8)), torch.randn(1, 8, 6, 6)
    variant = fused(model, x)
    place = variant.fusions and variant.fusions.at("conv")
    assert place is not None and (place.standing, place.runs, place.apart_ms, place.fused_ms) == ("slower", "", 1.0, 1.2)
    assert set(patterns(fused(model, x, on=["conv"]))) == {"conv"}
    monkeypatch.setattr(judging, "timed", lambda apart, fused, device: (1.0, 0.99))
    assert set(patterns(fused(model, x))) == {"conv"}


def test_equal_places_are_timed_once(always_quicker: list[Any]) -> None:
    lab.apply(lab.load("vit-s-tiny"), Recipe(["fuse"]))
    assert len(always_quicker) == 6, "patches, qkv, project, the two of the perceptron, head"


@pytest.mark.parametrize("broken", ["run", "rewritten"])
def test_a_replacement_that_answers_otherwise_is_not_made(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from paifuser_lab.fusing import blocks

    if broken == "run":
        right = onednn.run
        monkeypatch.setattr(onednn, "run", lambda *given: right(*given) * 1.01)
        reason = "its answer differs by "
    else:
        whole, worse = blocks.rewritten, lambda run: lambda *tensors: run(*tensors) * 1.01
        monkeypatch.setattr(blocks, "rewritten", lambda *given: worse(whole(*given)))
        reason = "the block around it then answers otherwise: its answer differs by "
    variant = fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6))
    assert variant.fusions is not None and patterns(variant) == {}
    assert all(one.reason.startswith(reason) for one in variant.fusions.fusions if one.place.startswith("body"))


def test_an_operator_that_does_not_take_a_place_leaves_it_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Tensor:
        raise RuntimeError("no such thing\nat all")

    monkeypatch.setattr(onednn, "run", refuse)
    variant = fused(Small(), images())
    assert variant.fusions is not None
    assert {one.reason for one in variant.fusions.fusions} == {"what would run in its stead fails (no such thing)"}


class Odd(nn.Module):
    """Layers that cannot be one with anything, each for a reason of its own."""

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


def test_what_cannot_be_one_is_told_with_its_reason() -> None:
    variant = fused(Odd(), torch.randn(1, 4, 5, 5))
    assert variant.fusions is not None
    told = {one.place: (one.standing, one.reason) for one in variant.fusions.fusions}
    assert told.pop("hooked") == ("fused", "what follows stays apart: it has hooks")
    assert {standing for standing, _ in told.values()} == {"apart"}
    assert {place: reason for place, (_, reason) in told.items()} == {
        "up": "no ConvTranspose2d is known here", "circle": "it pads otherwise than with a number of zeros",
        "weighed": "no ParametrizedConv2d is known here", "idle": "it is not called on the example inputs",
        "same": "it pads otherwise than with a number of zeros",
    }  # fmt: skip
    assert "weights packed for the processor take 64 B beside the weights" in variant.notes
    assert any("'up' stays apart: no ConvTranspose2d is known here" in note for note in variant.notes)


def test_a_sum_that_another_batch_would_stretch_is_right_in_every_batch() -> None:
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


def test_a_call_of_another_kind_runs_the_blocks_own_forward() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 4)

        def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
            y = torch.relu(self.line(x)) * scale
            return y if mask is None else y * mask

    model = Masked()
    variant = fused(model, torch.randn(2, 4))
    assert patterns(variant) == {"line": "linear + relu"}
    x, mask = torch.randn(3, 4), torch.randint(0, 2, (3, 4)).float()
    with torch.no_grad():
        torch.testing.assert_close(variant.model(x, mask), model(x, mask))
        torch.testing.assert_close(variant.model(x, scale=2.0), model(x, scale=2.0))
        torch.testing.assert_close(variant.model(x=x), model(x))


def test_undoing_is_exact_and_training_goes_on_as_before() -> None:
    model, x = enliven(Block("residual before", 8, "gelu")), torch.randn(2, 8, 6, 6)
    variant = fused(model, x)
    assert torch.equal(lab.apply(variant.work, Recipe()).model(x), model(x))
    own, theirs = copy.deepcopy(model), variant.module
    for one in (own, theirs):
        one.train()
        torch.manual_seed(3)
        one(x).square().sum().backward()
    assert patterns(variant) != {}
    for (name, one), other in zip(own.named_parameters(), theirs.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            assert torch.equal(one.grad, other.grad), name


def test_a_weight_changed_by_hand_is_packed_anew() -> None:
    model, x = enliven(Block("functional", 8)), torch.randn(1, 8, 6, 6)
    variant = fused(model, x)
    layer = variant.module.conv
    with torch.no_grad():
        before = variant.model(x)
        assert layer.__dict__["_packed"]
        for change in (
            lambda: layer.weight.mul_(2),
            lambda: setattr(layer, "weight", nn.Parameter(layer.weight * 0.5)),
            lambda: setattr(layer.weight, "data", layer.weight.data * 3),
            lambda: variant.module.load_state_dict(model.state_dict()),
        ):
            change()
            torch.testing.assert_close(variant.model(x), F.relu(F.conv2d(x, layer.weight, layer.bias, padding=1)))
        assert torch.equal(before, variant.model(x))


def test_a_fused_model_is_copied_pickled_saved_and_loaded(tmp_path: Any) -> None:
    work = lab.load("vit-s-tiny")
    variant = lab.apply(work, Recipe([{"fuse": {"off": ["head"]}}]))
    with torch.no_grad():
        wanted = work.inputs.clone()(variant.model)
        for other in (copy.deepcopy(variant.module), pickle.loads(pickle.dumps(variant.module))):
            assert sum(isinstance(one, FusedBlock) for one in other.modules()) == 6
            assert not any("_packed" in one.__dict__ for one in other.modules())
            assert torch.equal(work.inputs.clone()(other), wanted)
            assert other.blocks[0].mlp[0] is not variant.module.blocks[0].mlp[0]
        loaded = lab.Variant.load(variant.save(tmp_path / "kept"))
        assert torch.equal(work.inputs.clone()(loaded.model), wanted)
    assert loaded.fusions == variant.fusions
    assert set(variant.module.state_dict()) == set(work.model.state_dict())


def test_compilers_and_exporters_see_the_layers_apart() -> None:
    work = Workload(enliven(nn.Sequential(Block("around a sequence", 8), Block("residual", 8))), torch.randn(1, 8, 6, 6))
    variant = lab.apply(work, Recipe(["fuse"]))
    x = work.inputs.args[0]
    with torch.no_grad():
        compiled = torch.compile(variant.module, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), work.model(x))
        exported = torch.export.export(variant.module, (x,))
    assert not any("mkldnn" in str(node.target) for node in exported.graph.nodes)
    engine = lab.apply(work, Recipe(["fuse", {"backend": {"name": "onnxruntime", "threads": 1}}]))
    assert output_error(work.output(), engine.model(x))[0] < EXACT


def test_other_formats_autocast_and_devices_of_the_mind_run_right() -> None:
    model, x = enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6)
    variant = fused(model, x)
    module, apart = variant.module, lab.apply(variant.work, Recipe(["fold"])).model
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(variant.model(x), apart(x))
        wide = copy.deepcopy(module).double()
        torch.testing.assert_close(wide(x.double()), copy.deepcopy(model).double()(x.double()), rtol=1e-5, atol=1e-5)
        half = copy.deepcopy(module).bfloat16()
        assert output_error(model(x), half(x.bfloat16()).float())[0] < 0.03
        assert copy.deepcopy(module).to("meta")(x.to("meta")).shape == x.shape
    with torch.inference_mode():
        torch.testing.assert_close(variant.model(x), model(x))
    assert torch.equal(variant.model(torch.randn(0, 8, 6, 6)), torch.randn(0, 8, 6, 6))


def test_tools_that_read_the_structure_see_parts_and_the_arithmetic_is_counted() -> None:
    work = lab.load("resnet18-tiny")
    folded, variant = lab.apply(work, Recipe(["fold"])), lab.apply(work, Recipe(["fuse"]))
    call = lambda: work.inputs.clone()(variant.module)
    names = [one.name for one in observe(variant.module, call).operations]
    assert "convolution" in names and not any("mkldnn" in name for name in names)
    with torch.no_grad(), torch.autograd.profiler.profile() as profiled:
        call()
    assert any("mkldnn::_convolution_pointwise" in event.name() for event in profiled.kineto_results.events())
    run = lambda module: work.inputs.clone()(module)
    assert flops(variant.module, run) == flops(folded.module, run)


def test_other_steps_stand_before_it_and_are_put_there() -> None:
    recipe = Recipe(["fuse", {"backend": {"name": "eager"}}]).with_step({"prune": {"ratio": 0.5}}).with_step("layout")
    assert [step.kind for step in recipe] == ["prune", "layout", "fuse", "backend"]
    with pytest.raises(RecipeError, match="'fuse' stands before 'prune', which changes layers; put 'prune' before it"):
        Recipe(["fuse", {"prune": {"ratio": 0.5}}])
    work = lab.load("resnet18-tiny")
    variant = lab.apply(work, Recipe([{"prune": {"ratio": 0.5}}, "layout", "fuse"]))
    assert variant.fusions is not None and len(variant.fusions.fused) == 21


def test_layers_of_whole_numbers_stay_as_they_are() -> None:
    work = Workload(Small(), images())
    variant = lab.apply(work, Recipe([{"precision": {"layers": {"conv": "int8"}}}, "fuse"]))
    assert variant.fusions is not None
    assert {one.place: (one.standing, one.reason) for one in variant.fusions.fusions} == {
        "conv": ("apart", "it computes in int8"), "head": ("fused", ""),
    }  # fmt: skip


def test_a_long_search_can_be_stopped_and_asks() -> None:
    work = lab.load("vit-s-tiny")
    with pytest.raises(StoppedError, match="was stopped while places were timed"):
        lab.apply(work, Recipe(["fuse"]), should_stop=lambda: True)


def test_the_map_of_what_could_be_changes_nothing() -> None:
    work = lab.load("resnet18-tiny")
    before = weights_hash(work.model)
    found = lab.fusions(work)
    assert len(found.fused) == 21 and found.saved_ms == pytest.approx(21.0)
    assert weights_hash(work.model) == before and not any(isinstance(one, FusedLayer) for one in work.model.modules())
    assert lab.apply(work, Recipe(["fold"])).fusions is None


def test_a_session_looks_at_it_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LOOK_S", 0.05)
    session = Session(Workload(Small(), images(), name="small"), rounds=1, seconds=0.1)
    try:
        session.wait(120)
        session.look_at("fusion")
        state = session.wait(120)
        assert state.fusions is not None and {one.place for one in state.fusions.fused} == {"conv", "head"}
        session.choose({"fuse": {"off": ["head"]}})
        state = session.wait(120)
        assert state.error is None and state.variant is not None and set(patterns(state.variant)) == {"conv"}
    finally:
        session.close()


def test_a_model_that_changed_since_cannot_be_fused_again() -> None:
    variant = fused(enliven(Block("functional", 8)), torch.randn(1, 8, 6, 6))
    step, told = variant.recipe.steps[0], variant.remembered[0]
    from paifuser_lab.steps import Draft

    with pytest.raises(StepError, match="there is no layer 'conv', which ran as one"):
        step.rebuild(Draft(variant.work, nn.Sequential(nn.Conv2d(8, 8, 3))), told)
    with pytest.raises(StepError, match="its forward has no 'relu', which it had when it was fused"):
        step.rebuild(Draft(variant.work, Block("scalar", 8)), told)


@pytest.mark.parametrize(
    ("layer", "residual", "activation", "kernel"),
    [(nn.Linear(16, 8), False, "gelu", "pointwise"), (nn.Linear(16, 8), True, "none", "pointwise"),
     (nn.Linear(16, 8), False, "none", ""), (nn.Linear(16, 8), False, "tanh", ""), (nn.Linear(10, 8), False, "relu", ""),
     (nn.Conv2d(16, 8, 1), True, "relu", "pointwise"), (nn.Conv2d(16, 8, 1, stride=2), True, "relu", ""),
     (nn.Conv2d(8, 8, 3, 2, 1, groups=8), False, "relu6", "depthwise"), (nn.Conv2d(8, 8, 3, padding=1, groups=8), True, "none", "depthwise"),
     (nn.Conv2d(8, 8, 3, padding=1, groups=8), True, "relu", ""), (nn.Conv2d(16, 16, 3, groups=4), False, "relu", ""),
     (nn.Conv2d(8, 8, 3), False, "relu", "")],
)  # fmt: skip
def test_on_cuda_the_kernels_take_what_they_can(layer: nn.Module, residual: bool, activation: str, kernel: str) -> None:
    from paifuser_lab.fusing import cuda

    layer = layer.bfloat16()
    assert cuda.kernel_for(layer, torch.bfloat16, has_residual=residual, activation=activation) == kernel
    assert cuda.kernel_for(layer, torch.float32, has_residual=residual, activation=activation) == ""
    if kernel:
        shape = (2, 16) if isinstance(layer, nn.Linear) else (1, layer.weight.shape[1] * getattr(layer, "groups", 1), 6, 6)
        x = torch.randn(shape).bfloat16()
        layers.make_fused(layer)
        with torch.no_grad():
            more = torch.randn(layers.answer_shape(layer, x)).bfloat16() if residual else None
            wanted = layer.composed(x, more, activation)
            assert wanted.shape == layers.answer_shape(layer, x)
            torch.testing.assert_close(cuda.run(layer, layer.weight, x, more, activation), wanted, rtol=0.05, atol=0.05)


def test_a_layer_in_a_format_of_its_own_stays_as_it_is():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
    work = lab.Workload(model, torch.randn(1, 3, 8, 8), name="small")
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"3": "bf16"}}}, "fuse"]))
    assert variant.fusions.at("3").reason.startswith("a hook changes what it is given")


class Branch(nn.Module):
    """Something of everything that may change after it was fused."""

    rate = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.one, self.act, self.two, self.drop = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Dropout(0.5)
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
    """How many layers are given what follows them."""
    counted: list[Any] = []
    with torch.no_grad(), watching(module, lambda layer, args, kwargs: counted.extend(kwargs), lambda *left: None):
        module(x)
    return len(counted)


def doubled(module: nn.Module, given: Any, answer: Tensor) -> Tensor:
    return answer * 2


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a number": lambda block: setattr(block, "scale", 3.0),
    "a number of the class": lambda block: setattr(block, "rate", 3.0),
    "numbers": lambda block: setattr(block, "powers", (1, 3)),
    "a function": lambda block: setattr(block, "finish", torch.tanh),
    "a part that was not there": lambda block: setattr(block, "extra", nn.Tanh()),
    "an activation": lambda block: setattr(block, "act", nn.ReLU()),
    "an activation's setting": lambda block: setattr(block.act, "approximate", "tanh"),
    "an activation's forward": lambda block: setattr(block.act, "forward", torch.relu),
    "a layer": lambda block: setattr(block, "two", nn.Linear(16, 8)),
    "a layer by a sequence": lambda block: setattr(block, "two", nn.Sequential(nn.Linear(16, 8))),
    "a layer's weight": lambda block: nn.utils.parametrize.register_parametrization(block.one, "weight", nn.Tanh()),
    "a hook on an activation": lambda block: block.act.register_forward_hook(doubled),
    "a hook on a layer": lambda block: block.one.register_forward_hook(doubled),
    "a hook before a layer": lambda block: block.two.register_forward_pre_hook(lambda module, given: given[0] * 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_block_that_changed_since_runs_its_own_forward(change: Callable[[Any], Any]) -> None:
    x = torch.randn(3, 8)
    first = branch()
    for block in (first, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        before = joined(block, x), block(x)
        change(block)
        with torch.no_grad():
            got = block(x)
        assert before[0] == 2 and joined(block, x) == 0
        torch.testing.assert_close(got, block(x))
        assert not torch.equal(got, before[1])


def test_a_block_that_is_as_it_was_again_runs_as_one_again() -> None:
    block, x = branch(), torch.randn(3, 8)
    hook = block.act.register_forward_hook(doubled)
    block.scale = 3.0
    kept = pickle.loads(pickle.dumps(copy.deepcopy(block)))
    assert joined(block, x) == 0
    hook.remove()
    block.scale = 1.0
    assert joined(block, x) == 2
    kept.scale = 1.0
    kept.act._forward_hooks.clear()
    with torch.no_grad():
        got = kept(x)
    torch.testing.assert_close(got, kept(x))


def test_a_hook_on_a_block_sees_the_blocks_own_answer() -> None:
    module, x = fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6)).module, torch.randn(1, 8, 6, 6)
    module.body.register_forward_hook(doubled)
    with torch.no_grad():
        got = module(x)
    torch.testing.assert_close(got, module(x))


def test_a_dropout_that_is_switched_on_by_itself_drops() -> None:
    block, x = branch(), torch.randn(3, 8)
    block.drop.train()
    with torch.no_grad():
        assert not torch.equal(block(x), block(x))


class Even(nn.Module):
    """Hands on what it is given where that is of even width."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 1)) if x.shape[-1] % 2 else x


class Path(nn.Module):
    """A dropout of somebody's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(()) > 0.5) if self.training else x


@pytest.mark.parametrize(("part", "count"), [(Even(), 0), (Path(), 1), (nn.Dropout2d(), 1), (nn.Identity(), 1)])
def test_only_what_always_hands_on_what_it_is_given_stands_between(part: nn.Module, count: int) -> None:
    module = fused(nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), part, nn.ReLU()), torch.randn(1, 4, 6, 6)).module
    odd = torch.randn(1, 4, 6, 5)
    assert joined(module, odd) == count
    with torch.no_grad():
        got = module(odd)
    torch.testing.assert_close(got, module(odd))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_that_torch_does_not_count_is_seen(optimizer: Any) -> None:
    block, x = branch(), torch.randn(3, 8)
    with torch.no_grad():
        block(x)
    steps = optimizer(block.parameters(), lr=0.5, fused=True)
    block(x).square().sum().backward()
    steps.step()
    with torch.no_grad():
        got = block(x)
    torch.testing.assert_close(got, block(x))
    block.train()
    steps.step()
    with torch.no_grad():
        got = block.eval()(x)
    torch.testing.assert_close(got, block(x))


def test_kept_biases_are_made_anew_after_a_step_that_torch_does_not_count() -> None:
    from paifuser_lab.attending.windows.biases import KeptBias

    table, kept = nn.Parameter(torch.randn(49, 2)), KeptBias()
    call = lambda: kept(table, (8, 8), 4, 2, torch.float32)
    with torch.inference_mode():
        before = call()
    assert not before.is_inference() and not before.requires_grad
    call().sum().backward()
    torch.optim.SGD([table], lr=1.0, fused=True).step()
    with torch.no_grad():
        assert torch.equal(call(), KeptBias()(table, (8, 8), 4, 2, torch.float32)) and not torch.equal(call(), before)


@pytest.mark.parametrize("is_on", [True, False])
def test_derivatives_forwards_pass_through(is_on: bool) -> None:
    from torch.autograd import forward_ad

    block = branch().requires_grad_(False)
    x, way = torch.randn(3, 8), torch.randn(3, 8)

    def tangent(model: nn.Module) -> Tensor | None:
        with torch.set_grad_enabled(is_on), forward_ad.dual_level():
            return forward_ad.unpack_dual(model(forward_ad.make_dual(x, way))).tangent

    plain = Branch().eval().requires_grad_(False)
    plain.load_state_dict(block.state_dict())
    wanted = tangent(plain)
    got = tangent(block)
    assert wanted is not None and got is not None
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.func.jvp(block, (x,), (way,))[1], wanted)
    torch.testing.assert_close(
        torch.func.grad(lambda given: block(given).sum())(x), torch.func.grad(lambda given: plain(given).sum())(x)
    )


def test_inference_mode_runs_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    block, counted, right = branch(), list[Any](), onednn.run
    monkeypatch.setattr(onednn, "run", lambda *given: counted.append(given) or right(*given))
    with torch.inference_mode():
        block(torch.randn(3, 8))
    assert len(counted) == 2 and joined(block, torch.randn(3, 8)) == 2


def test_formats_that_a_forward_chooses_are_kept_under_autocast() -> None:
    class Island(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return torch.relu(self.one(x.float()))

    model, x = Island(), torch.randn(2, 8)
    module = fused(model, x).module
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(module(x), model(x))


def test_who_looks_in_does_so_in_a_thread_of_its_own() -> None:
    block, x = branch(), torch.randn(3, 8)
    with ThreadPoolExecutor(1) as other, composing():
        assert joined(block, x) == 0 and other.submit(joined, block, x).result() == 2


def test_copies_and_files_of_a_block_are_not_traced_at_their_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from paifuser_lab.fusing import blocks

    first, x = branch(), torch.randn(3, 8)
    loaded = pickle.loads(pickle.dumps(first))
    monkeypatch.setattr(blocks, "traced", lambda *given: pytest.fail("traced"))
    assert [joined(one, x) for one in (first, copy.deepcopy(first), copy.copy(first), loaded)] == [2] * 4


def test_a_model_given_in_training_is_fused_as_it_runs() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(F.relu(self.one(x)), 0.5, self.training)

    model, x = Dropped().train(), torch.randn(2, 8)
    assert fuse(model, Workload(copy.deepcopy(model), x), Choice(wanted=set)).layers == ["one"] and model.training
    model.eval()
    assert joined(model, x) == 1
    with torch.no_grad():
        got = model(x)
    torch.testing.assert_close(got, model(x))
