"""ONNX files as workloads: converted to torch and equal to ONNX Runtime, or run as they are."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import paifuser_lab as lab
from paifuser_lab.converter import export_onnx
from paifuser_lab.importer.onnx.operators import OPERATORS
from paifuser_lab.workload import Inputs, running


def exported(path, model, inputs, *, open_batch=False):
    model = model.eval()
    with running(model):
        export_onnx(model, Inputs.of(inputs), path, open_batch=open_batch)
    return path


def single(path, node, shape, *, opset=18, initializers=(), output=(), functions=()):
    graph = helper.make_graph(
        node if isinstance(node, list) else [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output or None)],
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("name", ["resnet18-tiny", "bert-base-tiny", "swin-t-tiny", "unet-tiny"])
def test_a_model_of_the_zoo_comes_back_from_its_onnx_file_as_torch_layers(name, tmp_path):
    original = lab.load(name)
    path = exported(tmp_path / "model.onnx", original.model, original.inputs)
    work = lab.load(path)
    assert "converted to torch" in work.notes[-1]
    kinds = {type(layer) for layer in work.model.modules()}
    assert kinds & {nn.Conv2d, nn.Linear}
    with running(work.model):
        names = [node.target for node in work.model.graph.nodes if node.op == "placeholder"]
        given = dict(zip(names, original.inputs.tensors, strict=True))
        answer = work.model(**given)
    right = original.output()
    right = right if isinstance(right, torch.Tensor) else next(iter(right.values()))
    answer = answer if isinstance(answer, torch.Tensor) else next(iter(answer.values()))
    assert torch.allclose(answer, right, atol=1e-4, rtol=1e-3)


def test_a_converted_file_is_profiled_quantized_pruned_and_folded(tmp_path):
    original = lab.load("resnet18-tiny")
    work = lab.load(exported(tmp_path / "net.onnx", original.model, original.inputs))
    assert work.name == "net"
    recipe = lab.Recipe([{"prune": {"ratio": 0.25}}, {"precision": "int8"}])
    variant = lab.apply(work, recipe)
    fewer = sum(weight.numel() for weight in variant.module.parameters())
    assert fewer < sum(weight.numel() for weight in work.model.parameters())
    assert "Conv2d" in lab.profile(work, seconds=0.1).frame.to_string()


def test_a_layer_has_the_path_that_it_had_in_the_exported_model(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    work = lab.Workload.from_onnx(exported(tmp_path / "a.onnx", model, torch.randn(2, 4)))
    linear = [name for name, layer in work.model.named_modules() if type(layer) is nn.Linear]
    assert linear == ["0", "2"]
    weight = work.model.get_submodule(linear[0]).weight
    assert torch.equal(weight, model[0].weight) and weight.requires_grad


def test_an_open_batch_stays_open(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    inputs = torch.randn(2, 3, 8, 8)
    path = exported(tmp_path / "a.onnx", model, inputs, open_batch=True)
    work = lab.load(path, batch=5)
    assert work.inputs.tensors[0].shape[0] == 5
    more = torch.randn(7, 3, 8, 8)
    with running(model):
        assert torch.allclose(work.model(more), model(more), atol=1e-5)


def test_equal_seeds_give_equal_inputs_within_the_rows_of_an_embedding(tmp_path):
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 2))
    path = exported(tmp_path / "a.onnx", model, torch.tensor([[0, 1, 2, 1, 0, 2]]))
    first, again, other = (lab.load(path, seed=seed) for seed in (0, 0, 1))
    indices = first.inputs.tensors[0]
    assert torch.equal(indices, again.inputs.tensors[0])
    assert not torch.equal(indices, other.inputs.tensors[0])
    assert int(indices.min()) >= 0 and int(indices.max()) < 3
    assert any(type(layer) is nn.Embedding for layer in first.model.modules())


def test_an_operator_without_a_counterpart_is_named_and_the_file_runs_as_it_is(tmp_path):
    node = helper.make_node("Det", ["x"], ["y"])
    assert "Det" not in OPERATORS
    work = lab.load(single(tmp_path / "a.onnx", node, [2, 3, 3]))
    assert "Det (1 ×)" in work.notes[0] and "ONNX Runtime" in work.notes[0]
    x = work.inputs.tensors[0]
    assert torch.allclose(work.model(x), torch.linalg.det(x), atol=1e-5)
    assert torch.equal(work.copied().model(x), work.model(x))


def test_a_wrong_counterpart_is_found_by_parity_and_not_used(tmp_path, monkeypatch):
    monkeypatch.setitem(OPERATORS, "Relu", lambda call: call.call(torch.abs, call.value(0)))
    node = helper.make_node("Relu", ["x"], ["y"])
    work = lab.load(single(tmp_path / "a.onnx", node, [4, 4]))
    assert "'y' of its torch graph differs by" in work.notes[0]
    assert torch.equal(work.output(), work.inputs.tensors[0].relu())


CASES = {
    "Slice": ({}, {"a": [1], "b": [5], "c": [1], "d": [2]}),
    "Pad": ({}, {"a": [0, 1, 2, 0]}),
    "Reshape": ({}, {"a": [0, -1, 2]}),
    "Expand": ({}, {"a": [3, 1, 6]}),
    "Tile": ({}, {"a": [2, 3]}),
    "Unsqueeze": ({}, {"a": [0, 2]}),
    "Gather": ({"axis": 1}, {"a": [0, -1, 2]}),
    "ReduceMean": ({"keepdims": 0}, {"a": [-1]}),
    "ReduceL2": ({}, {"a": [0]}),
    "ReduceProd": ({}, {"a": [1]}),
    "CumSum": ({}, {"a": [1]}),
    "Transpose": ({"perm": [1, 0]}, {}),
    "Flatten": ({"axis": 0}, {}),
    "Softmax": ({"axis": 0}, {}),
    "HardSigmoid": ({"alpha": 0.3}, {}),
    "LeakyRelu": ({"alpha": 0.2}, {}),
    "Round": ({}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnx_runtime_computes(name, tmp_path):
    attributes, integers = CASES[name]
    weights = [
        helper.make_tensor(key, TensorProto.INT64, [len(values)], values)
        for key, values in integers.items()
    ]
    node = helper.make_node(name, ["x", *integers], ["y"], **attributes)
    work = lab.load(single(tmp_path / "a.onnx", node, [4, 6], initializers=weights))
    assert "converted to torch" in work.notes[0]


def test_gelu_and_silu_in_several_nodes_become_one_layer(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.SiLU())
    work = lab.load(exported(tmp_path / "a.onnx", model, torch.randn(2, 4)))
    kinds = [type(layer) for layer in work.model.modules()]
    assert nn.GELU in kinds and nn.SiLU in kinds


def test_functions_of_a_file_are_written_out(tmp_path):
    body = [helper.make_node("Relu", ["a"], ["b"])]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    path = single(tmp_path / "a.onnx", node, [2, 2], functions=[twice])
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("own", 1))
    path.write_bytes(model.SerializeToString())
    assert any(type(layer) is nn.ReLU for layer in lab.load(path).model.modules())


def test_inputs_are_given_by_name_and_wrong_names_are_refused(tmp_path):
    path = single(tmp_path / "a.onnx", helper.make_node("Relu", ["x"], ["y"]), ["n", 3])
    given = torch.ones(4, 3)
    assert torch.equal(lab.Workload.from_onnx(path, {"x": given}).inputs.tensors[0], given)
    with pytest.raises(lab.PaifuserError, match="reads 'x'"):
        lab.Workload.from_onnx(path, {"z": given})
    assert lab.load(path, sizes={"n": 9}).inputs.tensors[0].shape == (9, 3)
    with pytest.raises(lab.PaifuserError, match="no open size 'm'"):
        lab.load(path, sizes={"m": 9})
