"""The step `reuse`: in place only where that is proven, and the same output to the bit."""

from __future__ import annotations

import copy
import json
import operator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.fusion.blocks import sums_in
from paifuser_lab.memory import reuse as reuse_module
from paifuser_lab.memory.lifetimes import record
from paifuser_lab.memory.reuse import plan_reuse
from paifuser_lab.memory.sole_readers import ACTIVATIONS
from paifuser_lab.model.weights import answer_hash, weights_hash
from paifuser_lab.workload import running
from tests.support.models import Small, enliven, images, small, state_of
from tests.support.processes import python

pytestmark = pytest.mark.usefixtures("one_thread")

REUSE = Recipe(["reuse"])


def in_place(variant: lab.Variant) -> list[str]:
    return [name for name, one in variant.module.named_modules() if getattr(one, "inplace", False)]


def outputs(model: nn.Module, *inputs: Any) -> str:
    with torch.no_grad():
        return answer_hash(model(*copy.deepcopy(inputs)))


def reused(model: nn.Module, *inputs: Tensor) -> lab.Variant:
    """Apply the step, and check what must always hold."""
    work = Workload(enliven(model), inputs, name="net")
    before, kept = state_of(work.model), [one.clone() for one in inputs]
    variant = lab.apply(work, REUSE)
    assert outputs(variant.model, *inputs) == outputs(work.model, *inputs)
    assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))
    undone = lab.apply(work, Recipe([]))
    assert state_of(work.model) == before and str(undone.module) == str(work.model)
    return variant


def reason(variant: lab.Variant, layer: str) -> str:
    """Why a layer keeps its input, of a variant where it is the only one for that reason."""
    (note,) = [note for note in variant.notes if note.startswith(f"'{layer}' keeps")]
    return note


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=lambda kind: kind.__name__)
def test_every_activation_in_place_is_the_same_to_the_bit(kind):
    act = kind(0.1, 20.0) if kind is nn.Threshold else kind()
    model = nn.Sequential(nn.Linear(33, 65), act, nn.Linear(65, 3))
    variant = reused(model, torch.randn(7, 33) * 4)
    assert in_place(variant) == ["1"]
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        x = (torch.randn(5, 33) * 4).to(dtype)
        plain, changed = (copy.deepcopy(one).to(dtype) for one in (model, variant.model))
        assert outputs(changed, x) == outputs(plain, x)


@pytest.mark.parametrize(("name", "first"), [("resnet18-tiny", ["fold"]), ("yolo-tiny", [])])
def test_a_zoo_model_runs_in_place_at_another_size_too(name, first):
    work = lab.load(name, batch=2)
    before = weights_hash(work.model)
    variant = lab.apply(work, Recipe([*first, "reuse"]))
    plain = lab.apply(work, Recipe(first))
    activations = [one for one in variant.module.modules() if type(one) in ACTIVATIONS]
    assert len(in_place(variant)) == len(activations) > 5
    for inputs in (work.inputs, lab.load(name, batch=3).inputs):
        with running(variant.model), running(plain.model):
            ours, theirs = (inputs.clone()(model) for model in (variant.model, plain.model))
        assert answer_hash(ours) == answer_hash(theirs)
    assert weights_hash(work.model) == before
    assert f"{len(activations)} of {len(activations)} activations" in variant.reports[-1].notes[0]


def test_the_peak_falls_where_only_the_activation_held_it():
    model = nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, 10))
    variant = reused(model, torch.randn(100, 10))
    # two buffers of 400 kB before; in place one, and the output of the next layer
    assert variant.notes[0] == (
        "1 of 1 activation in place; buffers at once: 800 kB → 404 kB; peak of a call with "
        "workspace inside operators: 800 kB → 404 kB"
    )


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.act(one) + other


class Reading(nn.Module):
    """A linear layer and a ReLU; its forward is drawn by `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.line, self.act = kind, nn.Linear(6, 6), nn.ReLU()
        self.inner = nn.Sequential(nn.ReLU())
        self.flat, self.pair = nn.Hardtanh(inplace=True), Pair()
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Any:
        y = self.line(x)
        match self.kind:
            case "read later":
                return self.act(y) + y
            case "returned":
                return self.act(y), y
            case "read before by another":
                absolute = y.abs()
                return self.act(y) + absolute
            case "kept in a list":
                self.kept.append(y)
                return self.act(y)
            case "read as an array":
                array = y.numpy()
                z = self.act(y)
                return z + float(array.sum())
            case "an input of the model":
                return self.act(x) + self.line(x)
            case "an input of the model, passed on":
                return self.inner(x) + self.line(x)
            case "a weight":
                return self.act(self.line.weight).mean() + y
            case "a part":
                return self.act(y[:1]) + 1
            case "repeated":
                return self.act(self.line(x[:1]).expand(4, 6)) + 1
            case "a choice by size":
                return self.act(y) + y if x.shape[0] > 4 else self.act(y)
            case "called twice":
                return self.act(self.act(y) - 1)
            case "called with a keyword":
                return self.act(input=y)
            case "behind one in place":
                return self.act(self.flat(y)) + y
            case "given twice":
                return self.pair(y, y)
        raise AssertionError(self.kind)


REASONS = {
    "read later": "read later",
    "returned": "an output of the model",
    "read before by another": "reads its input elsewhere",
    "kept in a list": "kept after the call",
    "read as an array": "cannot be traced",
    "an input of the model": "an input of the model or a weight",
    "an input of the model, passed on": "an input of the model or a weight",
    "a weight": "an input of the model or a weight",
    "a part": "a part of other values",
    "repeated": "a part of other values",
    "a choice by size": "cannot be traced",
    "called twice": "called more than once",
    "called with a keyword": "more than a tensor",
    "behind one in place": "read later",
    "given twice": "read later",
}


@pytest.mark.parametrize("kind", REASONS)
def test_an_activation_whose_input_others_may_read_keeps_it(kind):
    variant = reused(Reading(kind), torch.randn(4, 6))
    places = {"an input of the model, passed on": "inner.0", "given twice": "pair.act"}
    layer = places.get(kind, "act")
    assert in_place(variant) == ["flat"]
    assert variant.notes[0].startswith(("no activation", "0 of 3 activations and 1 of 1 sum"))
    assert REASONS[kind] in reason(variant, layer)
    for batch in (1, 4, 5):
        x = torch.randn(batch, 6)
        if kind != "repeated":
            assert outputs(variant.model, x) == outputs(variant.work.model, x)


class Nested(nn.Module):
    """Activations across blocks: what one block returns, and what another is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Identity())
        self.act = nn.ReLU()
        self.out = nn.Sequential(nn.Dropout(), nn.Hardswish(), nn.Conv2d(4, 4, 1))
        self.last = nn.Sequential(nn.BatchNorm2d(4), nn.SiLU(), nn.ReLU6())

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.into(x))
        return self.last(self.out(y * 2) + y)


def test_activations_across_blocks_run_in_place():
    assert in_place(reused(Nested(), images())) == ["act", "out.1", "last.1", "last.2"]


def test_what_a_block_is_called_with_is_kept_if_its_caller_reads_it():
    class Around(Nested):
        def forward(self, x: Tensor) -> Tensor:
            y = self.into(x)
            return self.out(y) + y.mean()

    variant = reused(Around(), images())
    assert "read later" in reason(variant, "out.1")

    class Before(Nested):
        def forward(self, x: Tensor) -> Tensor:
            y = self.into(x)
            z = y.mean()
            return self.out(y) + z

    assert "the model itself reads its input elsewhere" in reason(
        reused(Before(), images()), "out.1"
    )

    class Twice(Nested):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.out(self.into(x))) + self.last(self.into(x))

    assert in_place(reused(Twice(), images())) == []


def hooked(where: str) -> nn.Module:
    model = Nested()
    stored: list[Tensor] = []
    part = model.get_submodule(where)
    part.register_forward_hook(lambda module, args, output: stored.append(output.sum()))
    return model


@pytest.mark.parametrize(
    ("where", "kept"),
    [("act", "act"), ("into", "act"), ("into.0", "act"), ("out", "out.1"), ("last.0", "last.1")],
)
def test_layers_with_hooks_and_those_that_hooks_see_are_left_alone(where, kept):
    variant = reused(hooked(where), images())
    assert "hooks" in reason(variant, kept)
    assert kept not in in_place(variant) and len(in_place(variant)) >= 2


def test_a_shared_activation_is_left_alone():
    act = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act)
    assert "shared" in reason(reused(model, torch.randn(2, 4)), "1")


def test_layers_with_a_forward_of_their_own_are_left_alone(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[1].forward = lambda x: x.clamp(min=0)  # type: ignore[method-assign]
    plan = planned(model.eval(), torch.randn(2, 4))
    assert plan.layers == () and "another forward" in plan.kept["1"]
    line = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    line[0].forward = lambda x: x  # type: ignore[method-assign]
    monkeypatch.setattr(reuse_module, "_obstacle_in_run", lambda *given: "")
    assert "another forward" in planned(line, torch.randn(2, 4)).kept["1"]


def planned(model: nn.Module, *inputs: Tensor) -> Any:
    """The plan, with the graphs of a model in eval mode."""
    return plan_reuse(model, record(model, lambda: model(*inputs)))


def test_the_fast_path_of_a_transformer_is_left_alone():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=nn.ReLU())
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    variant = reused(model, torch.randn(2, 3, 8))
    assert in_place(variant) == [] and not variant.module._forward_pre_hooks
    assert any("did not run by itself" in note for note in variant.notes)


def test_a_compiled_part_is_left_alone():
    model = Nested().eval()
    model.last.compile(backend="eager")
    plan = planned(model, images())
    assert plan.layers == ("act", "out.1")
    assert "did not run by itself" in plan.kept["last.1"]


def test_fused_layers_stay_fused():
    work = lab.load("mobilenetv2-tiny")
    fused = lab.apply(work, Recipe(["fold", {"fuse": {"on": ["*"]}}]))
    variant = lab.apply(work, Recipe(["fold", {"fuse": {"on": ["*"]}}, "reuse"]))
    with running(fused.model), running(variant.model):
        ours, theirs = (work.inputs.clone()(one.model) for one in (variant, fused))
    assert answer_hash(ours) == answer_hash(theirs)
    assert [type(one) for one in variant.module.modules()] == [
        type(one) for one in fused.module.modules()
    ]


def gradients(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    weights = list(model.parameters())
    return list(torch.autograd.grad(model(inputs).square().sum(), weights))


def test_calls_with_gradients_and_in_training_run_as_if_nothing_were_in_place():
    work = lab.load("resnet18-tiny")
    variant, inputs = lab.apply(work, REUSE), work.inputs.args[0]
    plain, changed = copy.deepcopy(work.model).eval(), variant.model
    assert sums_in(changed) and in_place(variant)
    for mode in (False, True):
        plain.train(mode)
        changed.train(mode)
        ours, theirs = gradients(changed, inputs), gradients(plain, inputs)
        assert not in_place(variant)
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    plain.eval()
    changed.eval()
    with torch.inference_mode():
        assert answer_hash(changed(inputs)) == answer_hash(plain(inputs))
    assert in_place(variant), "the next call without gradients writes over inputs again"


def test_a_copy_switches_by_itself():
    model = lab.apply(small(), REUSE).model
    other = copy.deepcopy(model)
    model(images()).sum().backward()
    assert other.get_submodule("relu").inplace and not model.get_submodule("relu").inplace
    with torch.no_grad():
        other(images())
    assert not model.get_submodule("relu").inplace


def test_exporters_may_read_the_model_with_gradients_on():
    model = lab.apply(small(), REUSE).model
    exported = torch.export.export(model, (images(),)).module()
    traced = torch.jit.trace(model, images(), check_trace=False)
    x = images()
    assert outputs(exported, x) == outputs(traced, x) == outputs(model, x)


def test_a_model_that_is_not_deterministic_is_refused():
    class Noisy(Small):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.rand(1)

    with pytest.raises(StepError, match="its output differs from call to call"):
        lab.apply(Workload(Noisy(), images()), REUSE)


def test_an_output_that_changes_by_a_bit_is_an_error(monkeypatch):
    run_in_place = reuse_module.run_in_place

    def and_more(model: nn.Module, *what: Any) -> None:
        run_in_place(model, *what)
        with torch.no_grad():
            model.get_parameter("head.bias")[0] = torch.nextafter(
                model.get_parameter("head.bias")[0], torch.tensor(9.0)
            )

    monkeypatch.setattr(reuse_module, "run_in_place", and_more)
    with pytest.raises(StepError, match="not the same to the bit"):
        lab.apply(small(), REUSE)


FRESH = """
import json, sys
import torch
import paifuser_lab as lab
from paifuser_lab.fusion.blocks import sums_in
from paifuser_lab.model.weights import answer_hash

variant = lab.Variant.load(sys.argv[1])
inputs = lab.load("mobilenetv2-tiny").inputs
with torch.no_grad():
    output = answer_hash(inputs(variant.model))
places = [name for name, one in variant.module.named_modules() if getattr(one, "inplace", False)]
print(json.dumps([output, places, sorted(sums_in(variant.module))]))
"""


def test_a_saved_variant_is_the_same_in_a_fresh_process(tmp_path):
    work = lab.load("mobilenetv2-tiny")
    variant = lab.apply(work, Recipe(["fold", "reuse"]))
    folder = variant.save(tmp_path / "mine")
    root = str(Path(lab.__file__).parent.parent)
    fresh = python("-c", FRESH, folder, added={"PYTHONPATH": root, "OMP_NUM_THREADS": "1"})
    output, places, blocks = json.loads(fresh.stdout.splitlines()[-1])
    assert output == outputs(variant.model, *work.inputs.args)
    assert (places, blocks) == (in_place(variant), sorted(sums_in(variant.module)))
    assert blocks


def test_an_engine_may_follow():
    variant = lab.apply(small(), Recipe(["reuse", {"backend": {"name": "onnxruntime"}}]))
    assert outputs(variant.model, images()) and in_place(variant) == ["relu"]


# A random graph: each layer reads earlier values; several may be returned.
LAYERS = {
    "linear": lambda: nn.Linear(4, 4),
    "norm": lambda: nn.LayerNorm(4),
    "identity": nn.Identity,
    "dropout": nn.Dropout,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "in place": lambda: nn.Hardtanh(inplace=True),
    "block": lambda: nn.Sequential(nn.Linear(4, 4), nn.ELU()),
    "front": lambda: nn.Sequential(nn.LeakyReLU(), nn.Linear(4, 4)),
}
JOINS = {
    "add": operator.add,
    "cat": lambda one, other: torch.cat([one, other])[: one.shape[0]],
    "view": lambda one, other: one.view(-1, 2, 2).flatten(1),
    "flipped": lambda one, other: one.t().t() * 2,
    "sum": lambda one, other: one + other.mean(),
}


class Drawn(nn.Module):
    """Runs (kind, first, second) in order; numbers name the model's input or earlier values."""

    def __init__(self, program: list[tuple[str, int, int]], returned: list[int]) -> None:
        super().__init__()
        self.program, self.returned = program, returned
        self.parts = nn.ModuleDict(
            {str(index): LAYERS[kind]() for index, (kind, _, _) in enumerate(program)
             if kind in LAYERS}
        )  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        values = [x]
        for index, (kind, first, second) in enumerate(self.program):
            one, other = values[first % len(values)], values[second % len(values)]
            part = self.parts[str(index)] if kind in LAYERS else None
            values.append(JOINS[kind](one, other) if part is None else part(one))
        return [values[index % len(values)] for index in self.returned] + [values[-1]]


# most layers read the value just made (from the end: -1), as in models
READS = st.one_of(st.just(-1), st.just(-1), st.integers(-3, 6))
PROGRAMS = st.lists(
    st.tuples(st.sampled_from([*LAYERS, *JOINS, "add", "add"]), READS, READS),
    min_size=1,
    max_size=10,
)
found: list[int] = []
found_sums: list[int] = []


@settings(max_examples=80, deadline=None)
@given(PROGRAMS, st.lists(st.integers(0, 10), max_size=2), st.integers(0, 1000))
def test_a_random_graph_gives_the_same_to_the_bit(program, returned, seed):
    torch.manual_seed(seed)
    model = Drawn(program, returned).eval()
    changed = copy.deepcopy(model)
    x = torch.randn(3, 4)
    with torch.no_grad():
        plan = planned(changed, x)
        found.append(len(plan.layers))
        found_sums.append(plan.sums.count)
        reuse_module.run_in_place(changed, plan.layers, plan.sums.blocks)
        for batch in (3, 1, 5):
            x = torch.randn(batch, 4)
            ours, theirs = x.clone(), x.clone()
            assert answer_hash(changed(ours)) == answer_hash(model(theirs))
            assert torch.equal(ours, theirs)


def test_the_random_graphs_have_activations_to_run_in_place():
    assert sum(found) > 20 and sum(found_sums) > 2
