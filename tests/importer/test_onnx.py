"""ONNX files as workloads: converted to torch and equal to ONNX Runtime, or run as they are."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
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


def graph_file(path, nodes, inputs, outputs, weights=(), kinds=None, functions=()):
    """A file of several inputs and outputs; the kind of an input is FLOAT unless given."""
    kinds = kinds or {}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        list(weights),
    )
    imports = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def single(path, node, shape, **more):
    """A file of one node from x to y."""
    return graph_file(path, [node], {"x": shape}, ["y"], **more)


@pytest.mark.parametrize("name", ["bert-base-tiny", "swin-t-tiny", "unet-tiny"])
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
    assert work.name == "net" and "converted to torch" in work.notes[0]
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


def test_each_operator_computes_what_onnx_runtime_computes(tmp_path):
    nodes, weights = [], []
    for name, (attributes, integers) in CASES.items():
        for key, values in integers.items():
            tensor = helper.make_tensor(f"{name}.{key}", TensorProto.INT64, [len(values)], values)
            weights.append(tensor)
        inputs = ["x", *(f"{name}.{key}" for key in integers)]
        nodes.append(helper.make_node(name, inputs, [f"of {name}"], **attributes))
    path = graph_file(
        tmp_path / "a.onnx", nodes, {"x": [4, 6]}, [f"of {name}" for name in CASES], weights
    )
    work = lab.load(path)
    assert "converted to torch" in work.notes[0]
    assert work.output().keys() == {f"of {name}" for name in CASES}


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


def test_names_that_code_cannot_have_are_changed_and_never_shared(tmp_path):
    nodes = [
        helper.make_node("Relu", ["self"], ["h"], name="/in/lambda/Relu"),
        helper.make_node("Relu", ["a.b"], ["i"], name="/in/lambda/Relu_1"),
        helper.make_node("Add", ["h", "i"], ["j"]),
        helper.make_node("Add", ["j", "a_b"], ["k"]),
        helper.make_node("MatMul", ["k", "a." * 3000 + "weight"], ["y"]),
    ]
    weight = helper.make_tensor("a." * 3000 + "weight", TensorProto.FLOAT, [3, 3], [1.0] * 9)
    shapes = {"self": [2, 3], "a.b": [2, 3], "a_b": [2, 3]}
    work = lab.load(graph_file(tmp_path / "class.onnx", nodes, shapes, ["y"], [weight]))
    assert "converted to torch" in work.notes[0] and len(work.inputs.kwargs) == 3
    assert work.notes[-1] == "its inputs are called self_, a_b, a_b_ here, in test data too"
    relus = [name for name, layer in work.model.named_modules() if type(layer) is nn.ReLU]
    assert relus == ["in_.lambda_", "in_.lambda__2"]
    assert torch.equal(lab.apply(work, lab.Recipe([])).model(**work.inputs.kwargs), work.output())


def test_indices_in_a_size_that_is_open_are_right_at_every_size(tmp_path):
    nodes = [
        helper.make_node("GatherElements", ["x", "rows"], ["chosen"], axis=0),
        helper.make_node("Gather", ["x", "last"], ["end"], axis=0),
    ]
    last = helper.make_tensor("last", TensorProto.INT64, [1], [-1])
    path = graph_file(
        tmp_path / "a.onnx", nodes, {"x": ["n"], "rows": ["n"]}, ["chosen", "end"], [last],
        {"rows": TensorProto.INT64},
    )  # fmt: skip
    work = lab.load(path, sizes={"n": 5})
    assert "converted to torch" in work.notes[0]
    x, rows = torch.randn(40), torch.arange(39, -1, -1)
    answer = work.model(x=x, rows=rows)
    assert torch.equal(answer["chosen"], x.flip(0)) and torch.equal(answer["end"], x[-1:])


def test_padding_that_depends_on_an_open_size_is_left_to_onnx_runtime(tmp_path):
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2],
                            auto_pad="SAME_UPPER")  # fmt: skip
    work = lab.load(single(tmp_path / "a.onnx", node, [1, 1, "h", "w"]))
    assert "SAME_UPPER depends on the size" in work.notes[0]
    x = torch.randn(1, 1, 7, 7)
    assert torch.equal(work.model(x), nn.functional.max_pool2d(x, 3, 2, padding=1))


def test_given_inputs_leave_open_sizes_open(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Concat", ["s", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    rest = helper.make_tensor("rest", TensorProto.INT64, [2], [2, 3])
    path = graph_file(tmp_path / "a.onnx", nodes, {"x": ["n", 6]}, ["y"], [rest])
    work = lab.Workload.from_onnx(path, {"x": torch.ones(4, 6)})
    assert "converted" in work.notes[0] and work.model(torch.ones(7, 6)).shape == (7, 2, 3)


def test_values_that_are_no_tensors_of_numbers_are_refused_in_one_sentence(tmp_path):
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["y"])]
    sequence = graph_file(tmp_path / "a.onnx", nodes, {"x": [2]}, ["y"])
    model = onnx.load(sequence)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [2]))
    sequence.write_bytes(model.SerializeToString())
    half = graph_file(
        tmp_path / "b.onnx", [helper.make_node("Identity", ["x"], ["y"])], {"x": [2]}, ["y"],
        kinds={"x": TensorProto.BFLOAT16},
    )  # fmt: skip
    wrong = {
        "output 0 is no tensor of numbers": lambda: lab.load(sequence),
        "'x' is bfloat16": lambda: lab.load(half),
        "'x' is a list; give a tensor": lambda: lab.load(half, inputs={"x": [1.0, 2.0]}),
        "inputs gives Tensor; give a dict": lambda: lab.load(half, inputs=torch.ones(2)),
        "'n'.=0 is not possible": lambda: lab.load(half, sizes={"n": 0}),
        "has no option 'epochs'": lambda: lab.load(half, epochs=3),
    }
    for match, call in wrong.items():
        with pytest.raises(lab.PaifuserError, match=match):
            call()


def onnx_only(path):
    """A file with a product that can be rounded, and an operator that torch has no layer for."""
    values = torch.randn(9, 9, generator=torch.Generator().manual_seed(0)).reshape(-1).tolist()
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 9], values[:72])
    bias = helper.make_tensor("b", TensorProto.FLOAT, [9], values[72:])
    shape = helper.make_tensor("s", TensorProto.INT64, [3], [-1, 3, 3])
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Reshape", ["h", "s"], ["m"]),
        helper.make_node("Det", ["m"], ["d.1"]),
        helper.make_node("Relu", ["h"], ["d_1"]),
    ]
    return graph_file(path, nodes, {"x": [16, 8]}, ["d.1", "d_1"], [weight, bias, shape])


def test_a_file_loaded_with_data_is_found_again_by_a_saved_variant(tmp_path):
    path = onnx_only(tmp_path / "a.onnx")
    test = [(torch.randn(16, 8), torch.zeros(16))]
    work = lab.load(path, test=test, metric=lambda predict, test: 1.0)
    lab.apply(work, lab.Recipe([])).save(tmp_path / "mine")
    again = lab.load(tmp_path / "mine")
    assert work.loaded_as == str(path) and again.metric is None
    assert torch.equal(again.output()["d_1"], work.output()["d_1"])


def test_a_file_that_runs_as_it_is_is_quantized_as_onnx_saved_and_loaded(tmp_path):
    work = lab.load(onnx_only(tmp_path / "a.onnx"))
    assert work.output().keys() == {"d.1", "d_1"}
    variant = lab.apply(work, lab.Recipe([{"precision": "int8"}]))
    notes = " ".join(variant.notes)
    assert "ONNX only" in notes and "on the example inputs" in notes
    kinds = [node.op_type for node in onnx.load_from_string(
        variant.module.file.numpy().tobytes()).graph.node]  # fmt: skip
    assert "QuantizeLinear" in kinds
    answer, right = variant.model(work.inputs.args[0]), work.output()
    error = (answer["d_1"] - right["d_1"]).norm() / right["d_1"].norm()
    assert 0 < error < 0.1
    variant.save(tmp_path / "mine")
    again = lab.load(tmp_path / "mine")
    assert torch.equal(again.output()["d_1"], answer["d_1"])
    for options in ({"default": "bf16"}, {"default": "int8", "layers": {"*": "int8"}}):
        with pytest.raises(lab.PaifuserError, match="can be put into int8 as a whole"):
            lab.apply(work, lab.Recipe([{"precision": options}]))


@pytest.mark.parametrize(("options", "most"), [({}, 64), ({"reduced_range": False}, 127)])
def test_without_vnni_a_file_that_runs_as_it_is_is_quantized_in_reduced_range(
    tmp_path, processor, options, most
):
    processor.lacks_vnni()
    work = lab.load(onnx_only(tmp_path / "a.onnx"))
    variant = lab.apply(work, lab.Recipe([{"precision": {"default": "int8"} | options}]))
    assert largest_weight(variant.module) == most
    assert any("within 7 bits" in note for note in variant.notes) == (most == 64)


def largest_weight(module):
    """The largest integer of the weights in an ONNX file that was quantized."""
    graph = onnx.load_from_string(module.file.numpy().tobytes()).graph
    weights = [
        numpy_helper.to_array(tensor).astype(int)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.INT8
    ]
    return max(int(abs(weight).max()) for weight in weights)


@pytest.mark.parametrize(("options", "most"), [({}, 64), ({"reduced_range": False}, 127)])
def test_a_saved_file_of_another_processor_is_rounded_again_with_a_note(
    tmp_path, processor, options, most
):
    processor.has_vnni()  # elsewhere what is saved has saturated
    work = lab.load(onnx_only(tmp_path / "a.onnx"))
    saved = lab.apply(work, lab.Recipe([{"precision": {"default": "int8"} | options}]))
    saved.save(tmp_path / "mine")
    assert largest_weight(saved.module) == 127
    processor.lacks_vnni()
    loaded = lab.Variant.load(tmp_path / "mine", work)
    assert largest_weight(loaded.module) == most
    assert any("1 int8 weight rounded again" in note for note in loaded.notes) == (most == 64)
    answer, right = loaded.model(work.inputs.args[0])["d_1"], work.output()["d_1"]
    assert most == 127 or (answer - right).norm() / right.norm() < 0.05
    loaded.save(tmp_path / "again")
    again = lab.Variant.load(tmp_path / "again", work)
    assert torch.equal(again.model(work.inputs.args[0])["d_1"], answer)


def test_a_saved_folder_finds_its_file_again_unless_it_has_changed(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    exported(here / "net.onnx", model, torch.randn(2, 4))
    variant = lab.apply(lab.load("net.onnx"), lab.Recipe([{"precision": "bf16"}]))
    variant.save("mine")
    right = variant.model(variant.work.inputs.args[0])

    def loaded(folder):
        return lab.load(folder).output()

    monkeypatch.chdir(tmp_path)
    assert torch.equal(loaded("here/mine"), right)  # where the file was
    here.rename(tmp_path / "moved")
    assert torch.equal(loaded("moved/mine"), right)  # beside the folder
    nn.init.zeros_(model[0].weight)
    exported(tmp_path / "moved" / "net.onnx", model, torch.randn(2, 4))
    with pytest.raises(
        lab.PaifuserError, match="holds something else than when the model was saved"
    ):
        loaded("moved/mine")
    (tmp_path / "moved" / "net.onnx").unlink()
    with pytest.raises(lab.PaifuserError, match=r"no ONNX file 'net.onnx'.*give it"):
        loaded("moved/mine")
