"""The nodes of an engine's own profile: each at the layers whose work it does."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe
from paifuser_lab.converter import Graph, Node, Part, export_onnx, read_graph
from paifuser_lab.engines import EngineNode, NodeRecorder, build_engine
from paifuser_lab.engines.onnxruntime import REORDERS, joined_parts
from paifuser_lab.workload import Inputs
from tests.support.engines import EXPORTED, Block
from tests.support.models import Small, images

each_engine = pytest.mark.parametrize("engine", EXPORTED)


def recorded(model: nn.Module, inputs: Tensor, engine: str, runs: int = 2) -> list[EngineNode]:
    recorder = build_engine(engine, model.eval(), Inputs.of(inputs), 1).recorder(Inputs.of(inputs))
    assert isinstance(recorder, NodeRecorder)
    for _ in range(runs):
        recorder.run([inputs])
    return recorder.nodes()


def led_by(nodes: list[EngineNode]) -> dict[str | None, list[str]]:
    led: dict[str | None, list[str]] = {}
    for node in nodes:
        led.setdefault(node.leader, []).append(node.runs_as)
    return led


@each_engine
def test_a_convolution_leads_what_is_fused_with_it(engine: str) -> None:
    nodes = recorded(Small(), images(2), engine)
    (fused,) = (node for node in nodes if node.leader == "conv" and len(node.parts) > 1)
    assert [part.layer for part in fused.parts] == ["conv", "norm", "relu"]
    assert fused.runs_as == "Conv + BatchNorm + Relu"
    assert not {"norm", "relu"} & {node.leader for node in nodes}
    assert "head" in {node.leader for node in nodes}


@each_engine
def test_every_run_of_every_node_has_a_time(engine: str) -> None:
    nodes = recorded(Small(), images(2), engine, runs=3)
    assert all(len(node.ms) == 3 and min(node.ms) >= 0 for node in nodes)
    assert sum(sum(node.ms) for node in nodes) > 0


@each_engine
def test_the_layers_of_a_transformer_lead_their_nodes(engine: str) -> None:
    led = led_by(recorded(Block(), torch.randn(2, 4, 8), engine))
    assert {"query", "key", "value", "mlp.0", "mlp.2", "norm"} <= set(led)
    for layer in ("query", "key", "value", "mlp.0", "mlp.2"):
        assert any("MatMul" in text for text in led[layer])
    assert any("LayerNorm" in text for text in led["norm"])
    assert any("Softmax" in text for text in led[""]), "attention is the block's own work"


@each_engine
def test_int8_layers_lead_their_nodes(engine: str) -> None:
    work = lab.load("resnet18-tiny")
    variant = lab.apply(
        work, Recipe([{"precision": {"default": "int8"}}, {"backend": {"name": engine}}])
    )
    recorder: Any = variant.model.recorder(work.inputs)
    recorder.run(work.inputs.tensors)
    leaders = {node.leader for node in recorder.nodes()}
    layers = {name for name, layer in work.model.named_modules() if isinstance(layer, nn.Conv2d)}
    assert layers <= leaders


@each_engine
def test_recording_leaves_the_timed_session_alone(engine: str) -> None:
    built: Any = build_engine(engine, Small().eval(), Inputs.of(images(2)), 1)
    before, x = dict(built.sessions), images(2)
    expected = built(x)
    recorder = built.recorder(Inputs.of(x))
    recorder.run([x])
    recorder.nodes()
    assert built.sessions == before and torch.equal(built(x), expected)


def test_onnx_runtime_gives_the_bytes_of_a_node() -> None:
    nodes = recorded(Small(), images(2), "onnxruntime")
    (head,) = (node for node in nodes if node.leader == "head")
    assert head.written_bytes == 2 * 5 * 4
    assert head.read_bytes == (2 * 8 + 8 * 5 + 5) * 4
    assert head.held_bytes is None or head.held_bytes >= head.written_bytes


@pytest.mark.parametrize("engine", EXPORTED[1:])
def test_openvino_says_that_it_gives_no_memory(engine: str) -> None:
    built = build_engine(engine, Small().eval(), Inputs.of(images()), 1)
    recorder = built.recorder(Inputs.of(images()))
    assert recorder is not None and "memory" in recorder.no_memory
    recorder.run([images()])
    assert all(node.held_bytes is None for node in recorder.nodes())


def test_a_recording_that_is_never_read_leaves_no_files() -> None:
    built = build_engine("onnxruntime", Small().eval(), Inputs.of(images()), 1)
    recorder: Any = built.recorder(Inputs.of(images()))
    folder = recorder.folder
    assert folder.is_dir()
    del recorder
    gc.collect()
    assert not folder.exists()


def test_engines_that_cannot_be_seen_into_say_why() -> None:
    eager = build_engine("eager", Small().eval(), Inputs.of(images()), 1)
    assert eager.recorder(Inputs.of(images())) is None and eager.opaque == ""
    from paifuser_lab.engines.inductor import Inductor

    assert "kernels of its own" in Inductor.opaque


# What leads a node, and what it is called.


def node(*parts: tuple[str, str], op: str = "Fused") -> EngineNode:
    return EngineNode("n", op, "k", (1.0, 3.0), tuple(Part(*part) for part in parts))


@pytest.mark.parametrize(
    ("parts", "leader", "runs_as"),
    [
        ([("a", "DequantizeLinear"), ("b", "Conv"), ("c", "Relu")], "b", "Conv + Relu"),
        ([("norm", "LayerNormalization"), ("next", "QuantizeLinear")], "norm", "LayerNorm"),
        ([("block", "Add"), ("norm", "LayerNormalization")], "norm", "Add + LayerNorm"),
        ([("block", "Add"), ("relu", "Relu")], "block", "Add + Relu"),
        ([("block", "Transpose"), ("block", "Reshape")], "block", "Transpose + Reshape"),
        ([("q", "QuantizeLinear"), ("gelu", "Gelu")], "gelu", "Gelu"),
        ([], None, "Fused"),
    ],
)
def test_the_part_with_the_most_arithmetic_leads(
    parts: list[tuple[str, str]], leader: str | None, runs_as: str
) -> None:
    assert (node(*parts).leader, node(*parts).runs_as) == (leader, runs_as)


def test_a_part_without_a_row_goes_to_the_nearest_layer_above() -> None:
    renamed = node(("a.b.c", "Conv"), ("x", "Relu")).renamed(["", "a"])
    assert renamed.parts == (Part("a", "Conv"), Part("", "Relu"))


def test_the_cost_of_recording_leaves_no_negative_time() -> None:
    assert node().without(2.0).ms == (0.0, 1.0)


# The parts of a fused node, by its tensors.


def graph(*nodes: tuple[str, str, str, str], inputs: str = "x") -> Graph:
    """Nodes as (name, operator, inputs, outputs); the layer is the operator in small letters."""
    return Graph(
        tuple(
            Node(name, op, tuple(read.split()), tuple(made.split()), (Part(op.lower(), op),))
            for name, op, read, made in nodes
        ),
        frozenset(inputs.split()),
    )


EXPORT = graph(
    ("n1", "Conv", "x", "c"),
    ("n2", "Add", "c x", "s"),
    ("n3", "Relu", "s", "r"),
    ("n4", "Gemm", "r", "y"),
)


def parts_of(*nodes: tuple[str, str, str, str]) -> list[list[str]]:
    return [[part.op for part in parts] for parts in joined_parts(graph(*nodes), EXPORT)]


def test_a_node_has_all_parts_between_its_tensors() -> None:
    assert parts_of(("f", "Fused", "x", "r"), ("n4", "Gemm", "r", "y")) == [
        ["Conv", "Add", "Relu"],
        ["Gemm"],
    ]


def test_a_node_of_unknown_tensors_shares_the_work_of_its_reader() -> None:
    nodes = [("f", "Fused", "x", "r"), ("a", "Gemm", "r", "t"), ("b", "Reshape", "t", "y")]
    assert parts_of(*nodes) == [["Conv", "Add", "Relu"], ["Gemm"], ["Gemm"]]


def test_a_blocked_convolution_takes_the_sum_and_the_activation_that_it_swallowed() -> None:
    blocked = ("c_nchwc", "Conv", "t0 w b x", "t")
    assert parts_of(("in", "ReorderInput", "x", "t0"), blocked, ("n4", "Gemm", "t", "y")) == [
        [],
        ["Conv", "Add", "Relu"],
        ["Gemm"],
    ]
    plain = ("c_nchwc", "Conv", "x w b", "t")
    rest = [("n2", "Add", "t x", "s"), ("n3", "Relu", "s", "r"), ("n4", "Gemm", "r", "y")]
    assert parts_of(plain, *rest) == [["Conv"], ["Add"], ["Relu"], ["Gemm"]]
    assert "ReorderInput" in REORDERS


class Named(SimpleNamespace):
    """A node of OpenVINO's graph: the names that it took over, and which nodes read it."""


def openvino_parts(*nodes: tuple[str, str, str, str]) -> dict[str, list[str]]:
    """Nodes as (name, kind, names, readers)."""
    from paifuser_lab.engines.openvino import joined_parts as joined

    runtime: list[Any] = [
        Named(name=name, kind=kind, names=names.split(","), readers=readers.split())
        for name, kind, names, readers in nodes
    ]
    return {name: [part.op for part in parts] for name, parts in joined(runtime, EXPORT).items()}


def test_openvino_s_node_has_the_parts_whose_names_it_took_over() -> None:
    assert openvino_parts(
        ("x", "Input", "x", "n1/Without"),
        ("n1/Without", "Convolution", "n1/Without,n1,n2,n3", "y"),
        ("y", "FullyConnected", "y", ""),
    ) == {"n1/Without": ["Conv", "Add", "Relu"], "y": ["Gemm"]}


def test_what_lost_its_name_in_openvino_is_found_between_its_neighbours() -> None:
    before = ("n1", "Convolution", "n1,n2", "lost")
    after = ("n4", "FullyConnected", "n4", "")
    assert openvino_parts(before, ("lost", "Eltwise", "lost", "n4"), after)["lost"] == ["Relu"]
    assert openvino_parts(before, ("lost", "Reorder", "", "n4"), after) == {
        "n1": ["Conv", "Add"],
        "n4": ["Relu", "Gemm"],
    }
    scaled = ("n3", "Subgraph", "n3", "n4")
    assert openvino_parts(before, ("lost", "MVN", "lost", "n3"), scaled, after)["lost"] == ["Relu"]


def test_constants_are_no_parts_unless_there_is_nothing_else() -> None:
    export = graph(
        ("k", "Shape", "x", "shape"), ("n", "Expand", "shape", "k"), ("m", "Mul", "x k", "y")
    )
    assert [part.op for part in export.parts_between(["y"], {"x"})] == ["Mul"]
    assert [part.op for part in export.parts_between(["k"], {"x"})] == ["Shape", "Expand"]


def test_a_file_names_the_layers_of_each_node(tmp_path: Path) -> None:
    export_onnx(Small().eval(), Inputs.of(images(2)), tmp_path / "model.onnx")
    nodes = read_graph(tmp_path / "model.onnx").nodes
    (conv,) = (node for node in nodes if node.op == "Conv")
    assert [part.layer for part in conv.parts if part.op in ("Conv", "BatchNormalization")] == [
        "conv",
        "norm",
    ]
    assert {part.layer for node in nodes for part in node.parts} == {
        "", "conv", "norm", "relu", "head",
    }  # fmt: skip
