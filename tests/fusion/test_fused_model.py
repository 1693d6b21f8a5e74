"""A model with fused layers that is changed, copied, trained or compiled: its output is that of its
own forward.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.fusion import Switches, fuse, onednn
from paifuser_lab.fusion.blocks import FusedBlock
from paifuser_lab.fusion.fallback import composing
from paifuser_lab.fusion.layers import FusedLayer
from paifuser_lab.measure import flops, output_error
from paifuser_lab.model.graph import observe
from tests.support.fusing_models import (
    BACKENDS,
    EXACT,
    Block,
    Branch,
    branch,
    doubled,
    fused,
    joined,
    patterns,
    preferring,
)
from tests.support.models import enliven

pytestmark = pytest.mark.usefixtures("one_thread", "always_quicker")


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


def test_undo_is_exact_and_gradients_are_unchanged() -> None:
    model, x = enliven(Block("residual before", 8, "gelu")), torch.randn(2, 8, 6, 6)
    variant = fused(model, x)
    assert torch.equal(lab.apply(variant.work, Recipe()).model(x), model(x))
    original, theirs = copy.deepcopy(model), variant.module
    for module in (original, theirs):
        module.train()
        torch.manual_seed(3)
        module(x).square().sum().backward()
    assert patterns(variant) != {}
    for (name, parameter), reference in zip(
        original.named_parameters(), theirs.parameters(), strict=True
    ):
        assert (parameter.grad is None) == (reference.grad is None)
        if parameter.grad is not None and reference.grad is not None:
            assert torch.equal(parameter.grad, reference.grad), name


def test_a_weight_changed_by_hand_is_packed_again() -> None:
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
            torch.testing.assert_close(
                variant.model(x), F.relu(F.conv2d(x, layer.weight, layer.bias, padding=1))
            )
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


def test_compilers_and_exporters_see_the_unfused_layers() -> None:
    work = Workload(
        enliven(nn.Sequential(Block("around a sequence", 8), Block("residual", 8))),
        torch.randn(1, 8, 6, 6),
    )
    variant = lab.apply(work, Recipe(["fuse"]))
    x = work.inputs.args[0]
    with torch.no_grad():
        compiled = torch.compile(variant.module, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), work.model(x))
        exported = torch.export.export(variant.module, (x,))
    assert not any("mkldnn" in str(node.target) for node in exported.graph.nodes)
    engine = lab.apply(work, Recipe(["fuse", {"backend": {"name": "onnxruntime", "threads": 1}}]))
    assert output_error(work.output(), engine.model(x))[0] < EXACT


def test_other_dtypes_autocast_and_the_meta_device_work() -> None:
    model, x = enliven(Block("residual", 8)), torch.randn(1, 8, 6, 6)
    variant = fused(model, x)
    module, apart = variant.module, lab.apply(variant.work, Recipe(["fold"])).model
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(variant.model(x), apart(x))
        wide = copy.deepcopy(module).double()
        torch.testing.assert_close(
            wide(x.double()), copy.deepcopy(model).double()(x.double()), rtol=1e-5, atol=1e-5
        )
        half = copy.deepcopy(module).bfloat16()
        assert output_error(model(x), half(x.bfloat16()).float())[0] < 0.03
        assert copy.deepcopy(module).to("meta")(x.to("meta")).shape == x.shape
    with torch.inference_mode():
        torch.testing.assert_close(variant.model(x), model(x))
    assert torch.equal(variant.model(torch.randn(0, 8, 6, 6)), torch.randn(0, 8, 6, 6))


def test_tools_that_read_the_structure_see_unfused_operators_and_flops_are_counted() -> None:
    work = lab.load("resnet18-tiny")
    folded, variant = lab.apply(work, Recipe(["fold"])), lab.apply(work, Recipe(["fuse"]))
    call = lambda: work.inputs.clone()(variant.module)
    names = [one.name for one in observe(variant.module, call).operations]
    assert "convolution" in names and not any("mkldnn" in name for name in names)
    with torch.no_grad(), torch.autograd.profiler.profile() as profiled:
        call()
    assert any(
        "mkldnn::_convolution_pointwise" in event.name()
        for event in profiled.kineto_results.events()
    )
    run = lambda module: work.inputs.clone()(module)
    assert flops(variant.module, run) == flops(folded.module, run)


def test_a_model_that_changed_since_cannot_be_fused_again() -> None:
    variant = fused(enliven(Block("functional", 8)), torch.randn(1, 8, 6, 6))
    step, remembered = variant.recipe.steps[0], variant.remembered[0]
    from paifuser_lab.steps import Draft

    with pytest.raises(StepError, match="there is no layer 'conv', which was fused"):
        step.rebuild(Draft(variant.work, nn.Sequential(nn.Conv2d(8, 8, 3))), remembered)
    with pytest.raises(
        StepError, match="its forward has no 'relu', which it had when it was fused"
    ):
        step.rebuild(Draft(variant.work, Block("scalar", 8)), remembered)


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
    "a layer's weight": lambda block: nn.utils.parametrize.register_parametrization(
        block.one, "weight", nn.Tanh()
    ),
    "a hook on an activation": lambda block: block.act.register_forward_hook(doubled),
    "a hook on a layer": lambda block: block.one.register_forward_hook(doubled),
    "a hook before a layer": lambda block: block.two.register_forward_pre_hook(
        lambda module, given: given[0] * 2
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_block_that_changed_since_runs_its_own_forward(change: Callable[[Any], Any]) -> None:
    x = torch.randn(3, 8)
    first = branch()
    for block in (first, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        before = joined(block, x), block(x)
        change(block)
        with torch.no_grad():
            output = block(x)
        assert before[0] == 2 and joined(block, x) == 0
        torch.testing.assert_close(output, block(x))
        assert not torch.equal(output, before[1])


def test_a_block_that_is_restored_runs_fused_again() -> None:
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
        output = kept(x)
    torch.testing.assert_close(output, kept(x))


def test_a_hook_on_a_block_sees_the_blocks_own_output() -> None:
    module, x = (
        fused(enliven(Block("around a sequence", 8)), torch.randn(1, 8, 6, 6)).module,
        torch.randn(1, 8, 6, 6),
    )
    module.body.register_forward_hook(doubled)
    with torch.no_grad():
        output = module(x)
    torch.testing.assert_close(output, module(x))


def test_a_dropout_that_is_switched_on_by_itself_drops() -> None:
    block, x = branch(), torch.randn(3, 8)
    block.drop.train()
    with torch.no_grad():
        assert not torch.equal(block(x), block(x))


class Even(nn.Module):
    """Hands on its input where that is of even width."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 1)) if x.shape[-1] % 2 else x


class Path(nn.Module):
    """A dropout of something's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(()) > 0.5) if self.training else x


@pytest.mark.parametrize(
    ("part", "count"), [(Even(), 0), (Path(), 1), (nn.Dropout2d(), 1), (nn.Identity(), 1)]
)
def test_only_modules_that_always_return_their_input_are_skipped(
    part: nn.Module, count: int
) -> None:
    module = fused(
        nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), part, nn.ReLU()), torch.randn(1, 4, 6, 6)
    ).module
    odd = torch.randn(1, 4, 6, 5)
    assert joined(module, odd) == count
    with torch.no_grad():
        output = module(odd)
    torch.testing.assert_close(output, module(odd))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_that_torch_does_not_count_is_seen(optimizer: Any) -> None:
    block, x = branch(), torch.randn(3, 8)
    with torch.no_grad():
        block(x)
    steps = optimizer(block.parameters(), lr=0.5, fused=True)
    block(x).square().sum().backward()
    steps.step()
    with torch.no_grad():
        output = block(x)
    torch.testing.assert_close(output, block(x))
    block.train()
    steps.step()
    with torch.no_grad():
        output = block.eval()(x)
    torch.testing.assert_close(output, block(x))


@pytest.mark.parametrize("is_on", [True, False])
def test_forward_mode_derivatives_are_correct(is_on: bool) -> None:
    from torch.autograd import forward_ad

    block = branch().requires_grad_(False)
    x, way = torch.randn(3, 8), torch.randn(3, 8)

    def tangent(model: nn.Module) -> Tensor | None:
        with torch.set_grad_enabled(is_on), forward_ad.dual_level():
            return forward_ad.unpack_dual(model(forward_ad.make_dual(x, way))).tangent

    plain = Branch().eval().requires_grad_(False)
    plain.load_state_dict(block.state_dict())
    wanted = tangent(plain)
    output = tangent(block)
    assert wanted is not None and output is not None
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(torch.func.jvp(block, (x,), (way,))[1], wanted)
    torch.testing.assert_close(
        torch.func.grad(lambda given: block(given).sum())(x),
        torch.func.grad(lambda given: plain(given).sum())(x),
    )


def test_inference_mode_runs_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    block, counted, right = branch(), list[Any](), onednn.bind
    monkeypatch.setattr(
        onednn, "bind", lambda *given, **options: counted.append(given) or right(*given, **options)
    )
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


def test_composing_affects_its_own_thread_only() -> None:
    block, x = branch(), torch.randn(3, 8)
    with ThreadPoolExecutor(1) as other, composing():
        assert joined(block, x) == 0 and other.submit(joined, block, x).result() == 2


def test_copies_and_files_of_a_block_are_not_traced_at_their_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paifuser_lab.fusion import blocks

    first, x = branch(), torch.randn(3, 8)
    loaded = pickle.loads(pickle.dumps(first))
    monkeypatch.setattr(blocks, "traced", lambda *given: pytest.fail("traced"))
    assert [joined(one, x) for one in (first, copy.deepcopy(first), copy.copy(first), loaded)] == [
        2
    ] * 4


def test_a_model_in_training_mode_is_fused_in_eval_mode() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(F.relu(self.one(x)), 0.5, self.training)

    model, x = Dropped().train(), torch.randn(2, 8)
    every = lambda sites: Switches(set(sites), set(), set())
    done = fuse(model, Workload(copy.deepcopy(model), x), every)
    assert done.layers == {"one": "oneDNN"} and model.training
    model.eval()
    assert joined(model, x) == 1
    with torch.no_grad():
        output = model(x)
    torch.testing.assert_close(output, model(x))


@pytest.mark.parametrize("way", BACKENDS)
def test_inputs_of_another_width_are_refused_as_torch_refuses_them(way: str) -> None:
    with preferring(way):
        variant = fused(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), torch.randn(2, 8))
        points = fused(nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU()), torch.randn(1, 8, 3, 3))
    for model, right, wrong in (
        (variant.model, (2, 8), (2, 5)),
        (points.model, (1, 8, 3, 3), (1, 16, 3, 3)),
    ):
        with torch.no_grad():
            model(torch.randn(right))
            with pytest.raises(RuntimeError, match=r"cannot be multiplied|expected input"):
                model(torch.randn(wrong))


@pytest.mark.parametrize("way", BACKENDS)
def test_a_changed_geometry_of_a_convolution_applies_at_the_next_call(way: str) -> None:
    with preferring(way):
        variant = fused(nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU()), torch.randn(1, 8, 6, 6))
    layer, x = variant.module[0], torch.randn(1, 8, 6, 6)
    for name, value in (
        ("stride", (2, 2)),
        ("padding", (1, 1)),
        ("dilation", (2, 2)),
        ("stride", (1, 1)),
    ):
        with torch.no_grad():
            variant.model(x)
            setattr(layer, name, value)
            wanted = F.relu(
                F.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation)
            )
            torch.testing.assert_close(variant.model(x), wanted)


@pytest.mark.parametrize("way", BACKENDS)
def test_weights_that_were_cast_are_packed_again(way: str) -> None:
    with preferring(way):
        module = fused(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.randn(2, 64)).module
    x = torch.randn(2, 64)
    for _ in range(20):
        with torch.no_grad():
            module(x)
            nn.init.normal_(module[0].weight)
            module(x)
            module.half().float()
            torch.testing.assert_close(
                module(x), F.relu(F.linear(x, module[0].weight, module[0].bias))
            )


@pytest.mark.parametrize("way", BACKENDS)
def test_another_thread_may_drop_the_packed_weight_during_a_call(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with preferring(way):
        module = fused(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(2, 8)).module
    right, x = FusedLayer._takes, torch.randn(3, 8)  # which nothing is at hand for yet
    monkeypatch.setattr(
        FusedLayer, "_takes", lambda self, *given: self._forget() or right(self, *given)
    )
    with torch.no_grad():
        torch.testing.assert_close(module(x), F.relu(F.linear(x, module[0].weight, module[0].bias)))


def test_make_fx_and_the_meta_device_run() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    module = branch()
    with torch.no_grad():
        assert copy.deepcopy(module).to("meta")(torch.randn(3, 8, device="meta")).shape == (3, 8)
        traced = make_fx(module, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
            torch.randn(3, 8)
        )
        x = torch.randn(5, 8)
        torch.testing.assert_close(traced(x), module(x))


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("side", [1, 6])
@pytest.mark.parametrize("is_last", ["neither", "images", "weight", "both", "a part"])
def test_outputs_have_the_memory_format_of_torchs(is_last: str, side: int, way: str) -> None:
    conv = nn.Conv2d(8, 4, 1)
    if is_last in ("weight", "both"):
        conv.to(memory_format=torch.channels_last)
    x = torch.randn(2, 8 if is_last != "a part" else 16, side, side)
    x = x if is_last in ("neither", "weight") else x.contiguous(memory_format=torch.channels_last)
    x = x[:, :8] if is_last == "a part" else x
    with preferring(way), torch.no_grad():
        variant = fused(nn.Sequential(conv, nn.ReLU()), x)
        output, wanted = variant.model(x), F.relu(conv(x))
    strides = [
        one.stride()[: 4 if side > 1 else 2] for one in (output, wanted)
    ]  # those of a side of one point mean nothing
    assert strides[0] == strides[1] and output_error(wanted, output)[0] < EXACT
