"""ONNX files: the opset that was asked for, precision, names, metadata, weights beside the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.converter import Exportable, export
from paifuser_lab.converter.narrow import to_bf16, to_fp16
from paifuser_lab.converter.onnx_file import OnnxFile
from paifuser_lab.converter.opset import lower_opset, opset_of
from paifuser_lab.errors import ExportError
from paifuser_lab.model.weights import weights_hash
from tests.support.models import OnGpu
from tests.support.tricky_exports import tricky_row

pytestmark = pytest.mark.usefixtures("one_thread")


class Branching(nn.Module):
    """Two inputs by name, a norm, a sum, and an output in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm = nn.Linear(8, 64), nn.LayerNorm(64)
        self.head = nn.Linear(64, 4)

    def forward(self, features: Tensor, *, add: Tensor) -> dict[str, Tensor]:
        x = self.norm(self.wide(features)) + add
        return {"scores": self.head(x.tanh()).softmax(-1), "add": x.sum(1)}


def branching() -> lab.Workload:
    torch.manual_seed(0)
    inputs = {"features": torch.randn(2, 8), "add": torch.randn(2, 64)}
    return lab.Workload(Branching(), inputs, name="branching")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in the opset that torch delivers."""
    return export(
        branching(), "onnx", tmp_path_factory.mktemp("onnx") / "model.onnx", seconds=0
    ).file


def test_the_delivered_opset_is_the_one_asked_for_and_names_are_the_models(tmp_path):
    report = export(branching(), "onnx", tmp_path / "m.onnx", opset=13, dynamic=True, seconds=0)
    loaded = onnx.load(report.path)
    assert report.opset == opset_of(loaded) == 13
    assert report.compared[-1] == "another batch"
    assert [value.name for value in loaded.graph.input] == ["features", "add"]
    assert [value.name for value in loaded.graph.output] == list(report.outputs)
    assert report.outputs == ("scores", "add_2"), "an output that is named like an input"
    batches = {value.type.tensor_type.shape.dim[0].dim_param for value in loaded.graph.input}
    assert batches == {"batch"}
    kinds = {node.op_type for node in loaded.graph.node}
    assert "LayerNormalization" not in kinds, "it exists from opset 17 on"


class Passing(nn.Module):
    """Outputs an input as it is, and one tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        y = self.line(x)
        return {"y": y, "mask": mask, "again": y}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_input_or_a_tensor_twice_among_the_outputs_has_names_of_its_own(dtype, tmp_path):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 4, dtype=dtype), "mask": torch.rand(2, 4, dtype=dtype)}
    work = lab.Workload(Passing().to(dtype), inputs, name="passing")
    report = export(work, "onnx", tmp_path / "m.onnx", seconds=0)
    graph = onnx.load(report.path).graph
    assert [value.name for value in graph.input] == list(report.inputs) == ["x", "mask"]
    assert (
        [value.name for value in graph.output] == list(report.outputs) == ["y", "mask_2", "again"]
    )


def test_a_file_is_run_on_tensors_of_a_gpu(model):
    run, tensors = OnnxFile().opened(model, 1), branching().inputs.tensors
    outputs = run([OnGpu(tensor) for tensor in tensors])
    assert all(map(torch.equal, outputs, run(tensors)))


def test_metadata_tells_where_a_file_comes_from(tmp_path):
    work = branching()
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"wide": "int8-weights"}}}]))
    report = export(variant, "onnx", tmp_path / "m.onnx", seconds=0)
    props = {entry.key: entry.value for entry in onnx.load(report.path).metadata_props}
    assert json.loads(props["paifuser_lab.recipe"])[0]["precision"]["layers"]
    assert props["paifuser_lab.weights_hash"] == variant.weights_hash == report.weights_hash
    assert props["paifuser_lab.original_hash"] != variant.weights_hash
    assert props["paifuser_lab.precision"] == report.precision == "int8-weights"
    with pytest.raises(ExportError, match="'wide' is in int8-weights already"):
        export(variant, "onnx", tmp_path / "m.onnx", precision="fp32", seconds=0)


def test_fp16_keeps_sums_and_exponentials_in_fp32(model, tmp_path):
    narrow, (note,) = to_fp16(onnx.load(model))
    onnx.checker.check_model(narrow, full_check=True)
    assert "Softmax" in note and "LayerNormalization" in note
    elements = {value.name: value.type.tensor_type.elem_type for value in narrow.graph.value_info}
    for node in narrow.graph.node:
        if node.op_type == "Softmax":
            assert elements[node.input[0]] == onnx.TensorProto.FLOAT
    inputs = {value.type.tensor_type.elem_type for value in narrow.graph.input}
    assert inputs == {onnx.TensorProto.FLOAT}, "inputs stay as they are"
    weights = [tensor for tensor in narrow.graph.initializer if len(tensor.dims) == 2]
    assert {tensor.data_type for tensor in weights} == {onnx.TensorProto.FLOAT16}
    report = export(branching(), "onnx", tmp_path / "m.onnx", precision="fp16", seconds=0)
    assert 1e-6 < report.error <= report.tolerance == 1e-2


def test_bf16_halves_the_weights_and_runs_everywhere(model):
    before = onnx.load(model)
    rounded = onnx.load(model)
    (note,) = to_bf16(rounded)
    assert note.startswith("2 weights are stored in bf16")
    exact = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in before.graph.initializer}
    for tensor in rounded.graph.initializer:
        if tensor.data_type == onnx.TensorProto.BFLOAT16:
            bits = numpy.frombuffer(tensor.raw_data, numpy.uint16).astype(numpy.uint32) << 16
            original = exact[tensor.name.removesuffix("_bf16")].reshape(-1)
            assert numpy.allclose(bits.view(numpy.float32), original, rtol=2**-8)
    onnx.checker.check_model(rounded, full_check=True)


def test_weights_past_the_limit_lie_beside_the_file_and_older_ones_are_removed(tmp_path):
    path = tmp_path / "m.onnx"
    first = export(branching(), "onnx", path, inline_bytes=1000, seconds=0)
    (weights,) = tmp_path.glob("*.data")
    assert weights.name in first.notes[0] and first.bytes > weights.stat().st_size
    work = branching()
    nn.init.ones_(work.model.wide.weight)
    (tmp_path / "m.notes.data").write_text("somebody else's")
    again = export(work, "onnx", path, inline_bytes=1000, seconds=0)
    names = {file.name for file in tmp_path.glob("*.data")}
    assert weights.name not in names and len(names) == 2 and "m.notes.data" in names
    assert again.error is not None and again.error < 1e-5


def test_an_operator_that_an_older_opset_lacks_is_named_with_its_layer_and_the_lowest_opset():
    node = onnx.helper.make_node("Mish", ["x"], ["y"])
    node.metadata_props.add(key="paifuser_lab.parts", value='[["head.act", "Mish"]]')
    value = onnx.helper.make_tensor_value_info
    ends = value("x", 1, [1, 2]), value("y", 1, [1, 2])
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    with pytest.raises(
        ExportError,
        match=r"in opset 13: operator Mish of layer 'head.act' exists from opset 18 on; the lowest "
        "that works is 18",
    ):
        lower_opset("net", made, 13)
    assert opset_of(made) == 20
    with pytest.raises(ExportError, match="written from opset 11 on"):
        lower_opset("net", made, 9)


def reduced(axes: list[int], *, keep: int) -> Any:
    value, tensor = onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    node = onnx.helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=keep)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [value("x", 1, [2, 3, 4])],
        [value("y", 1, [None] * (3 if keep else 3 - len(axes)))],
        [tensor(numpy.array(axes, numpy.int64), "axes")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    axes=st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=3, unique=True),
    keep=st.booleans(),
    opset=st.integers(11, 17),
)
def test_a_rewritten_operator_computes_the_same(axes: list[int], *, keep: bool, opset: int) -> None:
    from onnx.reference import ReferenceEvaluator

    newer, older = reduced(axes, keep=keep), reduced(axes, keep=keep)
    lower_opset("net", older, opset)
    assert opset_of(older) == opset and len(older.graph.node[0].input) == 1
    x = numpy.random.default_rng(0).normal(size=(2, 3, 4)).astype(numpy.float32)
    (expected,), (actual,) = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (newer, older))
    assert numpy.allclose(expected, actual)


@pytest.mark.parametrize("opset", [13, 17])
def test_lowered_files_still_know_their_layers(model, opset):
    lowered = onnx.load(model)
    lower_opset("branching", lowered, opset)
    layers = {
        json.loads(entry.value)[0][0]
        for node in lowered.graph.node
        for entry in node.metadata_props
        if entry.key == "paifuser_lab.parts" and json.loads(entry.value)
    }
    assert {"wide", "norm", "head"} <= layers


def test_int8_is_the_variants_own(tmp_path):
    variant = lab.apply(branching(), lab.Recipe([{"precision": {"default": "int8"}}]))
    report = export(variant, "onnx", tmp_path / "m.onnx", precision="int8", seconds=0)
    kinds = [node.op_type for node in onnx.load(report.path).graph.node]
    assert kinds.count("QuantizeLinear") == 2 and report.tolerance == 5e-2


def test_parts_under_autocast_go_out_as_casts(tmp_path):
    variant = lab.apply(branching(), lab.Recipe([{"precision": {"default": "amp-fp16"}}]))
    report = export(variant, "onnx", tmp_path / "m.onnx", seconds=0)
    graph = onnx.load(report.path).graph
    elements = [value.type.tensor_type.elem_type for value in graph.value_info]
    assert (report.precision, report.runs_here) == ("fp16", True)
    assert onnx.TensorProto.FLOAT16 in elements
    assert "Cast" in {node.op_type for node in graph.node}


@pytest.mark.parametrize("step", ["amp-bf16", "bf16"])
def test_what_is_rounded_to_bf16_is_rounded_in_the_file_and_runs_in_fp32(step, tmp_path):
    variant = lab.apply(branching(), lab.Recipe([{"precision": {"default": step}}]))
    report = export(variant, "onnx", tmp_path / "m.onnx", opset=13, seconds=0)
    assert report.runs_here and (report.precision, report.opset) == ("bf16", 13)
    (note,) = report.notes
    assert "rounded to bf16 and computed with in fp32" in note
    exact = export(branching(), "onnx", tmp_path / "exact.onnx", seconds=0)
    assert exact.error is not None and report.error is not None
    assert exact.error < 1e-6 < 1e-4 < report.error < report.tolerance
    graph = onnx.load(report.path).graph
    kinds = {one.data_type for one in graph.initializer if len(one.dims) == 2}
    assert kinds == {onnx.TensorProto.BFLOAT16}, "stored as they are rounded"


def test_an_engines_variant_is_exported_from_its_layers(tmp_path):
    recipe = lab.Recipe([{"backend": {"name": "onnxruntime", "threads": 1}}])
    variant = lab.apply(branching(), recipe)
    for subject in (variant, variant.workload):
        assert type(Exportable.of(subject).module) is Branching
    report = export(variant, "onnx", tmp_path / "m.onnx", seconds=0)
    assert report.threads == 1


def test_an_exportable_knows_its_own_threads_and_the_original_of_a_saved_variant(tmp_path):
    variant = lab.apply(branching(), lab.Recipe([{"backend": {"name": "eager", "threads": 1}}]))
    assert Exportable.of(variant).own_threads == 1
    assert Exportable.of(branching()).own_threads is None
    work = lab.load("resnet18-tiny")
    saved = lab.apply(work, lab.Recipe(["fold"])).save(tmp_path / "saved")
    loaded = Exportable.of(lab.load(saved))
    assert loaded.original_hash == weights_hash(work.model) != weights_hash(loaded.module)


@pytest.mark.parametrize(
    ("name", "dynamic", "outcome", "reason"),
    [
        ("branch", False, "refused", "chooses what it runs by the values of its tensors"),
        ("shape-branch", True, "refused", "differs from the live model on another batch"),
        ("in-place", False, "right", ""),
        ("custom-operator", False, "refused", "operator paifuser_tricky.doubled in the model"),
        ("buffer", False, "refused", "its forward changes buffer 'seen'"),
        ("attribute", False, "refused", "gives two outputs for the same inputs"),
        ("indices", True, "right", ""),
    ],
)
def test_models_that_are_hard_to_export_are_right_or_refused(name, dynamic, outcome, reason):
    row = tricky_row(name, dynamic=dynamic)
    assert row.outcome == outcome, row
    assert reason in row.refused
