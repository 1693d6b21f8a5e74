"""ONNX files that would read elsewhere, allocate or never end are refused in one sentence."""

from __future__ import annotations

import contextlib
import os

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import paifuser_lab as lab
from paifuser_lab.importer.limits import NotConvertibleError
from paifuser_lab.importer.onnx.convert import convert
from paifuser_lab.importer.onnx.examples import examples, open_sizes
from paifuser_lab.importer.onnx.proto import read_onnx
from tests.support.onnx_files import matrix_file


def refused(path, match):
    with pytest.raises(lab.PaifuserError, match=match) as caught:
        lab.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def stored(path, model):
    path.write_bytes(model.SerializeToString())
    return path


def with_external(path, location, **entries):
    model = onnx.load_from_string(matrix_file())
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return stored(path, model)


@pytest.mark.parametrize("location", ["/etc/hostname", "../secret", "a/../../secret", "", "C:x"])
def test_weights_outside_the_folder_are_not_read(location, tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    refused(with_external(inside / "m.onnx", location), "outside the folder")


@pytest.mark.parametrize("link", ["symbolic", "hard", "folder"])
def test_weights_behind_a_link_are_not_read(link, tmp_path):
    inside, outside = tmp_path / "model", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(bytes(64))
    location = "secret"
    if link == "symbolic":
        (inside / "secret").symlink_to(outside / "secret")
    elif link == "hard":
        os.link(outside / "secret", inside / "secret")
    else:
        (inside / "sub").symlink_to(outside)
        location = "sub/secret"
    refused(with_external(inside / "m.onnx", location), "link")


def test_weights_in_a_plain_file_beside_the_model_are_read(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(64))
    work = lab.load(with_external(tmp_path / "m.onnx", "weights", offset=0, length=64))
    assert float(work.output().abs().sum()) == 0.0


def test_weights_of_a_graph_in_a_node_are_among_the_files_of_a_model(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(64))
    path = with_external(tmp_path / "m.onnx", "weights", offset=0, length=64)
    inner = onnx.load(path, load_external_data=False)
    outer = onnx.load_from_string(matrix_file())
    outer.graph.node[0].attribute.append(helper.make_attribute("body", inner.graph))
    file = read_onnx(stored(tmp_path / "m.onnx", outer))
    assert file.external_files == {tmp_path / "weights"}


def test_weights_past_the_end_of_their_file_are_refused(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(64))
    refused(with_external(tmp_path / "m.onnx", "weights", offset=32, length=64), "ends at byte 96")


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 62, 1 << 62], [-4, 4], [3, 4]])
def test_a_weight_whose_shape_does_not_fit_its_bytes_is_refused(dims, tmp_path):
    model = onnx.load_from_string(matrix_file())
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    refused(stored(tmp_path / "m.onnx", model), "negative|past the limit|bytes where")


@pytest.mark.parametrize("dims", [[1 << 40, 4], [-1 << 40, 4]])
def test_an_input_of_an_impossible_shape_is_refused(dims, tmp_path):
    model = onnx.load_from_string(matrix_file())
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, dims, strict=True):
        dim.dim_value = size
    refused(stored(tmp_path / "m.onnx", model), "negative|past the limit")


def test_nested_functions_that_grow_without_end_are_counted_not_written_out(tmp_path):
    model = onnx.load_from_string(matrix_file())
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    for level in range(12):
        calls = [
            helper.make_node(f"F{level + 1}", ["a"], [f"b{index}"], domain="f")
            if level < 11
            else helper.make_node("Relu", ["a"], [f"b{index}"])
            for index in range(8)
        ]
        model.functions.append(
            helper.make_function("f", f"F{level}", ["a"], ["b0"], calls, imports)
        )
    refused(stored(tmp_path / "m.onnx", model), "more than 100,000 nodes")


def test_a_function_that_calls_itself_is_refused(tmp_path):
    model = onnx.load_from_string(matrix_file())
    body = [helper.make_node("F", ["a"], ["b"], domain="f")]
    imports = [helper.make_opsetid("f", 1)]
    model.functions.append(helper.make_function("f", "F", ["a"], ["b"], body, imports))
    refused(stored(tmp_path / "m.onnx", model), "calls itself")


def test_graphs_that_are_deep_in_each_other_are_refused(tmp_path):
    model = onnx.load_from_string(matrix_file())
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "g", [], [])
    for _ in range(20):
        node = helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
        inner = helper.make_graph([node], "g", [], [])
        if inner.ByteSize() > 1 << 20:
            break
        del node
        inner.node[0].attribute.pop()
    model.graph.node.append(inner.node[0])
    refused(stored(tmp_path / "m.onnx", model), "deep in each other|not a sound")


def test_an_operator_that_makes_a_huge_tensor_allocates_nothing(tmp_path):
    model = onnx.load_from_string(matrix_file())
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [1 << 20, 1 << 20])
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("ConstantOfShape", ["s"], ["huge"]))
    refused(stored(tmp_path / "m.onnx", model), "ONNX Runtime cannot run|past the limit")


def converted(model, tmp_path):
    """The file converted without ONNX Runtime having run it first."""
    file = read_onnx(stored(tmp_path / "m.onnx", model))
    return convert(file, examples(file, open_sizes(file, 1, {}), 0, 1))


def test_the_converter_itself_allocates_no_huge_constant_nor_many(tmp_path, monkeypatch):
    model = onnx.load_from_string(matrix_file())
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [1 << 20, 1 << 20])
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("ConstantOfShape", ["s"], ["huge"]))
    with pytest.raises(NotConvertibleError, match="past the limit"):
        converted(model, tmp_path)
    monkeypatch.setattr("paifuser_lab.importer.tree.MAX_COMPUTED", 1000)
    model.graph.initializer[1].CopyFrom(helper.make_tensor("s", TensorProto.INT64, [1], [100]))
    converted(model, tmp_path)
    for index in range(2):
        model.graph.node.append(helper.make_node("ConstantOfShape", ["s"], [f"more{index}"]))
    with pytest.raises(NotConvertibleError, match="constants take more than the limit"):
        converted(model, tmp_path)


def test_names_in_functions_and_inner_graphs_are_text(tmp_path):
    model = onnx.load_from_string(matrix_file())
    body = [helper.make_node("Relu", ["a"], ["bbbb"])]
    imports = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("f", "F", ["a"], ["bbbb"], body, imports))
    content = model.SerializeToString().replace(b"bbbb", b"b\xff\xffb")
    (tmp_path / "m.onnx").write_bytes(content)
    refused(tmp_path / "m.onnx", "not a sound ONNX file")


def test_random_and_cut_bytes_are_refused(tmp_path):
    for name, content in (("a", b"\xff" * 500), ("b", b""), ("c", matrix_file()[:60])):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        refused(path, "sound|no ONNX graph|opset|bytes where")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_model_or_one_error(tmp_path_factory, changes):
    content = bytearray(matrix_file())
    for index, byte in changes:
        content[index % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "mutated.onnx"
    path.write_bytes(bytes(content))
    with contextlib.suppress(lab.PaifuserError, NotConvertibleError):  # and no other error
        file = read_onnx(path)
        given_ = examples(file, open_sizes(file, 1, {}), 0, 1)
        convert(file, given_)
