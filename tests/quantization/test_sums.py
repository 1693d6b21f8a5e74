"""Sums and concatenations in int8: which are, that a file holds them so, and that live and exported
models agree.
"""

from __future__ import annotations

import copy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.converter import export_onnx
from paifuser_lab.model.formats import Range
from paifuser_lab.quantization import (
    Int8Tensor,
    calibrate,
    norms_of,
    remembered_of,
    restore_layers,
    trace_graph,
)
from paifuser_lab.quantization.residuals import plan_residuals, rounded_outputs
from tests.support.precision import error

SAME = 0.02  # relative L2: an engine rounds a value between two steps to the other one now and then
pytestmark = pytest.mark.usefixtures("one_thread")
INT8: dict[str, Any] = {"default": "int8", "sums": "int8"}


class Branch(nn.Module):
    """A residual block, written in one of the ways in which people write them."""

    def __init__(
        self,
        width: int,
        *,
        narrows: bool = False,
        writes: bool = False,
        relu: nn.Module | None = None,
    ) -> None:
        super().__init__()
        stride = 2 if narrows else 1
        self.one, self.norm = (
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.two = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(width, width, 1, stride) if narrows else nn.Identity()
        self.relu = relu or nn.ReLU()
        self.writes = writes

    def forward(self, x: Tensor) -> Tensor:
        out = self.two(F.relu(self.norm(self.one(x))))
        if self.writes:
            out += self.shortcut(x)
            return self.relu(out)
        return self.relu(self.shortcut(x) + out)


class Residual(nn.Module):
    """A stem that is pooled, two residual blocks, a mean and a linear layer."""

    def __init__(self, width: int = 8, *, pools: bool = True, **options: Any) -> None:
        super().__init__()
        self.stem, self.relu = nn.Conv2d(3, width, 3, padding=1), nn.ReLU()
        self.pool = nn.MaxPool2d(2) if pools else nn.Identity()
        self.blocks = nn.Sequential(
            Branch(width, **options),
            Branch(width, narrows=True, **options),
            Branch(width, **options),
        )
        self.head = nn.Linear(width, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.pool(self.relu(self.stem(images)))).mean((2, 3)))


class Joining(nn.Module):
    """What was seen before narrowing is put beside what was seen after, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner, self.up = nn.Conv2d(8, 8, 3, padding=1), nn.Upsample(scale_factor=2)
        self.last = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.stem(images)
        return self.last(torch.cat([seen, self.up(self.inner(F.max_pool2d(seen, 2)))], 1))


def work_of(model: nn.Module, size: int = 16) -> Workload:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return Workload(model.eval(), torch.randn(2, 3, size, size))


def chosen(work: Workload, **options: Any) -> lab.Variant:
    return lab.apply(work, Recipe([{"precision": INT8 | options}]))


def as_shown(model: nn.Module, images: Tensor, patch: pytest.MonkeyPatch) -> Tensor:
    """What the operators that an exporter is shown give, run as they are."""
    with patch.context() as patched, torch.no_grad():
        patched.setattr(torch.compiler, "is_compiling", lambda: True)
        patched.setattr(torch.compiler, "is_exporting", lambda: True)
        return model(images)


@given(
    writes=st.booleans(),
    pools=st.booleans(),
    how=st.sampled_from(["min-max", "percentile", "mse"]),
    relu=st.sampled_from([nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.Identity(), nn.GELU()]),
    seed=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_what_an_exporter_is_shown_is_what_runs_live(writes, pools, how, relu, seed):
    torch.manual_seed(seed)
    work = work_of(Residual(pools=pools, writes=writes, relu=relu))
    model = chosen(work, calibration=how, layers={"head": "fp32"}).module
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        live = model(images)
    # a value halfway between two steps may be rounded the other way: seed 47, with pools, on AVX2
    assert error(as_shown(model, images, pytest.MonkeyPatch()), live) < 3e-3
    assert error(live, work.model(images)) < 0.1


ENGINES = [
    "onnxruntime",
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed"),
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "make", [Joining, lambda: Residual(writes=True, relu=nn.ReLU(inplace=True))]
)
def test_an_engine_gives_the_numbers_of_the_live_model(engine, make):
    work = work_of(make())
    last = (
        {"layers": {"head": "fp32"}} if hasattr(work.model, "head") else {}
    )  # which would round small differences away
    live, numbers = chosen(work, **last), chosen(work, sums="numbers", **last)
    exported = lab.apply(
        work, Recipe([{"precision": INT8 | last}, {"backend": {"name": engine, "threads": 1}}])
    )
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert error(exported.model(images), live.model(images)) < SAME
        assert error(live.model(images), numbers.model(images)) > 1e-4, "sums were rounded"
    assert error(live.model(work.inputs.args[0]), work.output()) < 0.03


def onnxruntime_kinds(model: nn.Module, work: Workload, folder: Path) -> Counter[str]:
    """The operators that ONNX Runtime made of a model."""
    import onnx
    import onnxruntime

    export_onnx(model, work.inputs.clone(), folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


def test_onnx_runtime_computes_convolutions_sums_and_linear_layers_on_integers(tmp_path):
    work = work_of(Residual())
    kinds = onnxruntime_kinds(chosen(work).module, work, tmp_path)
    assert kinds["QLinearConv"] == 8 and kinds["Conv"] + kinds["FusedConv"] == 0
    assert kinds["QLinearAdd"] == 2 and kinds["Add"] == 1, "the last sum is read as numbers"
    assert kinds["QGemm"] + kinds["MatMulIntegerToFloat"] == 1 and kinds["QuantizeLinear"] == 2, (
        "the images and the mean"
    )
    before = onnxruntime_kinds(chosen(work, sums="numbers").module, work, tmp_path)
    assert before["QLinearAdd"] == 0 and before["QLinearConv"] < 8


def test_by_default_sums_are_on_integers_in_files_alone(monkeypatch, tmp_path):
    work = work_of(Residual(pools=False))
    default, numbers, whole = (
        chosen(work, sums=sums, layers={"head": "fp32"}).module
        for sums in ("exported", "numbers", "int8")
    )
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(default(images), numbers(images))
    assert error(default(images), whole(images)) > 1e-4
    assert torch.equal(as_shown(default, images, monkeypatch), as_shown(whole, images, monkeypatch))

    import onnx

    kinds = []
    for model in (default, whole):
        export_onnx(model, work.inputs.clone(), tmp_path / "model.onnx")
        kinds.append(
            Counter(node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node)
        )
    assert kinds[0] == kinds[1], "a value is rounded once"


def test_files_that_differ_only_in_their_sums_are_kept_apart():
    work = work_of(Residual())
    images = work.inputs.args[0]
    last, engine = {"layers": {"head": "fp32"}}, {"backend": "onnxruntime"}
    kinds = "exported", "numbers", "exported"
    first, numbers, again = (
        lab.apply(work, Recipe([{"precision": INT8 | last | {"sums": kind}}, engine])).model(images)
        for kind in kinds
    )
    assert torch.equal(first, again) and not torch.equal(first, numbers)


def test_onnx_runtime_concatenates_integers(tmp_path):
    work = work_of(Joining())
    assert onnxruntime_kinds(chosen(work).module, work, tmp_path)["QLinearConcat"] == 1


@pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed")
def test_openvino_keeps_bytes_between_convolutions(tmp_path):
    import openvino

    def handed_on(sums: str) -> Counter[str]:
        work = work_of(Residual(16))
        export_onnx(chosen(work, sums=sums).module, work.inputs.clone(), tmp_path / "model.onnx")
        runtime = (
            openvino.Core().compile_model(str(tmp_path / "model.onnx"), "CPU").get_runtime_model()
        )
        infos = [one.get_rt_info() for one in runtime.get_ordered_ops()]
        return Counter(
            one["outputPrecisions"].astype(str)
            for one in infos
            if one["layerType"].astype(str) == "Convolution"
        )

    assert handed_on("int8")["u8"] == 7, "all but the last, whose sum is read as numbers"
    assert handed_on("numbers")["u8"] < 6


def sums_of(model: nn.Module) -> Any:
    work = work_of(model)
    layers = [name for name, one in model.named_modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    return plan_residuals(
        trace_graph(work, model), calibrate(model, [lambda: work.output()], layers)
    )


def test_which_module_rounds_is_planned_from_a_run():
    plan = sums_of(Residual())
    assert plan.sums == 3
    assert set(plan.modules) == {"relu", "blocks.0.relu", "blocks.1.relu"}
    assert {layer for layer, rounding in plan.layers.items() if rounding.is_shared} == {
        "blocks.0.two", "blocks.1.two", "blocks.1.shortcut", "blocks.2.two",
    }  # fmt: skip
    assert plan.consumers == {"blocks.0.one", "blocks.1.one", "blocks.1.shortcut", "blocks.2.one"}


class Asking(Residual):
    """Somebody wants the stem's values as numbers too."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        stem = self.pool(self.relu(self.stem(images)))
        return self.head(self.blocks(stem).mean((2, 3))), stem


class Inline(nn.Module):
    """A sum that another reads and that no module outputs: nothing could round it for both."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))

    def forward(self, images: Tensor) -> Tensor:
        stem = self.stem(images)
        first = stem + self.one(stem)
        return first + self.two(first)


def test_what_others_want_as_numbers_is_not_rounded_for_a_sum():
    assert sums_of(Asking()).sums == 2
    assert "relu" not in sums_of(Asking()).modules
    assert sums_of(Inline()).sums == 1


def test_sums_that_no_int8_layer_reads_stay_as_they_are():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    work = Workload(nn.Sequential(layer, nn.Linear(8, 3)), torch.randn(2, 5, 8))
    one, other = chosen(work), chosen(work, sums="numbers")
    assert not rounded_outputs(one.module)
    with torch.no_grad():
        assert torch.equal(one.model(work.inputs.args[0]), other.model(work.inputs.args[0]))


def test_a_sum_goes_on_in_int8_live():
    work = work_of(Residual())
    model = chosen(work).module
    given: list[bool] = []
    model.blocks[1].register_forward_pre_hook(
        lambda module, args: given.append(isinstance(args[0], Int8Tensor))
    )
    with torch.no_grad():
        model(work.inputs.args[0])
    assert given == [True]


def test_layers_in_16_bits_around_sums_in_int8():
    work = work_of(Residual())
    variant = chosen(work, default="bf16", layers={"*": "int8", "head": "bf16"})
    assert rounded_outputs(variant.module)
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.1


@pytest.mark.parametrize("sums", ["exported", "int8"])
def test_the_same_is_put_in_place_again_without_data(sums):
    work = work_of(Residual())
    fresh = copy.deepcopy(work.model)
    model = chosen(work, sums=sums).module
    layers = {name for name, one in model.named_modules() if hasattr(one, "requantization")}
    remembered = remembered_of(model, layers, norms_of(fresh))
    restore_layers(fresh, remembered)
    fresh.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(fresh(images), model(images))
    assert torch.equal(
        as_shown(fresh, images, pytest.MonkeyPatch()), as_shown(model, images, pytest.MonkeyPatch())
    )


def connected_in_files(model: nn.Module) -> tuple[set[str], dict[str, bool]]:
    """The modules that round their output in files, and the int8 layers that are connected there,
    with whether their input is rounded before.
    """
    connections = {
        name: one.exported.is_input_rounded
        for name, one in model.named_modules()
        if getattr(one, "exported", None) is not None
    }
    return set(rounded_outputs(model, only_exported=True)), connections


def test_trained_layers_are_connected_in_files_as_those_of_precision():
    work = work_of(Residual())
    work.train = [(work.inputs.args[0], None)]
    steps = {"precision": {"default": "int8"}}, {"qat": {"epochs": 1}}
    placed, trained = (lab.apply(work, Recipe([step])).module for step in steps)
    assert connected_in_files(trained) == connected_in_files(placed)
    assert connected_in_files(trained)[0] == {"relu", "blocks.0.relu", "blocks.1.relu"}


def test_a_bias_beside_weights_of_nearly_nothing_is_exported_whole_or_not_at_all(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].weight.data[1] = 1e-12
    work = Workload(model, torch.randn(5, 4))
    variant = lab.apply(
        work,
        Recipe(
            [{"precision": {"default": "int8"}}, {"backend": {"name": "onnxruntime", "threads": 1}}]
        ),
    )
    torch.testing.assert_close(variant.model(work.inputs.args[0]), work.output(), atol=0.05, rtol=0)


def test_a_range_of_its_own_is_that_of_what_leaves_the_layer():
    plan = sums_of(Residual())
    requantizations = plan.requantizations(
        {consumer: Range(0, 1) for consumer in plan.consumers},
        {name: Range(-2, 3) for name in plan.unknown},
    )
    assert requantizations["blocks.0.two"].span == Range(-2, 3) and requantizations[
        "stem"
    ].span == Range(0, 1)
