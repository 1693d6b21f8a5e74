"""Figures of layers on the graph of Google's Model Explorer: on the nodes that it shows."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import FileError
from paifuser_lab.records import Estimate, LayerProfile, LayerSensitivity
from tests.support.drawn import PROFILE, RECORDS


class Net(nn.Module):
    """Two layers, one of them called twice, and operators of its own."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.head(self.body(x)).mul(3) + x).mul(2)


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Net().eval(), (torch.zeros(1, 4),))


def profiled(**own_ms):
    rows = [LayerProfile(layer=name.replace("_", "."), kind="k", self_ms=ms)
            for name, ms in own_ms.items()]  # fmt: skip
    return PROFILE.model_copy(update={"layers": (LayerProfile(layer="", kind="Net"), *rows)})


def values_of(path):
    data = json.loads(path.read_text())
    assert list(data) == ["graph"] and set(data["graph"]) == {"name", "results", "gradient"}
    return {node: result["value"] for node, result in data["graph"]["results"].items()}


def test_a_layer_s_time_is_divided_among_its_operators_and_no_time_is_lost(program, tmp_path):
    profile = profiled(body_0=3.0, body_1=1.0, head=8.0)
    values = values_of(profile.save_overlay(tmp_path / "x.json", program))
    assert values == {
        "linear": 3,
        "relu": 1,
        "linear_1": 4,
        "linear_2": 4,
        "add": 0,
        "mul": 0,
        "mul_1": 0,
    }


def test_operators_share_a_layer_as_they_took_it_in_the_traced_call(program, tmp_path):
    columns = {
        "layers": ("", "head"), "operators": ("", "aten::mul", "aten::add", "aten::linear"),
        "lanes": ("thread 1",), "lane_index": (0,) * 3, "layer_index": (0, 0, 1),
        "operator_index": (1, 2, 3), "start_ms": (0.0, 3.0, 4.0), "end_ms": (3.0, 4.0, 5.0),
    }  # fmt: skip
    known = profiled(head=2.0)
    root = known.layers[0].model_copy(update={"self_ms": 8.0})
    timeline = known.timeline.model_copy(update=columns)
    known = known.model_copy(update={"layers": (root, known.layers[1]), "timeline": timeline})
    values = values_of(known.save_overlay(tmp_path / "x.json", program))
    assert values == {"mul": 3, "mul_1": 3, "add": 2, "linear_1": 1, "linear_2": 1}


def test_a_layer_whose_time_is_not_known_has_no_value(program, tmp_path):
    profile = profiled(body_0=3.0, head=1.0)
    head = profile.layers[2].model_copy(update={"unknown_why": {"self_ms": "the engine"}})
    profile = profile.model_copy(update={"layers": (*profile.layers[:2], head)})
    assert "linear_1" not in values_of(profile.save_overlay(tmp_path / "x.json", program))


def test_the_program_of_another_model_is_refused(program, tmp_path):
    with pytest.raises(FileError, match=r"x\.json: the program has none of the layers conv"):
        PROFILE.save_overlay(tmp_path / "x.json", program)
    assert not (tmp_path / "x.json").exists()


def test_sensitivity_is_written_in_one_of_its_formats(program, tmp_path):
    row = LayerSensitivity(layer="body.0", kind="Linear", parameters=4,
                           scores={"int8": {"quadratic": Estimate(value=0.1)}})  # fmt: skip
    update = {"rows": (row, row.model_copy(update={"layer": "head", "scores": {}}))}
    scored = RECORDS["Sensitivity"].model_copy(update=update)
    path = scored.save_overlay(tmp_path / "x.json", program)
    assert values_of(path) == {"linear": 0.1}
    assert json.loads(path.read_text())["graph"]["name"] == "loss in int8"
    with pytest.raises(FileError, match="no scores in 'int4'; take one of int8"):
        scored.save_overlay(tmp_path / "x.json", program, "int4")


@pytest.fixture
def explorer(monkeypatch):
    """Its adapter and its node data, without the server that the package needs others for."""
    found = find_spec("model_explorer")
    if found is None:
        pytest.skip("Model Explorer is absent; pip install --no-deps ai-edge-model-explorer")
    package = ModuleType("model_explorer")
    package.__path__ = list(found.submodule_search_locations)
    monkeypatch.setitem(sys.modules, "model_explorer", package)
    names = ("pytorch_exported_program_adapter_impl", "node_data_builder")
    yield [importlib.import_module(f"model_explorer.{name}") for name in names]
    for name in [name for name in sys.modules if name.startswith("model_explorer.")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["resnet18-tiny", "vit-s-tiny"])
def test_model_explorer_has_the_nodes_and_the_sums_of_its_groups_are_the_layers_times(
    name, explorer, tmp_path
):
    adapter, builder = explorer
    work = lab.load(name)
    profile = lab.profile(work, runs=1, threads=1)
    program = torch.export.export(work.model, work.inputs.args)
    path = profile.save_overlay(tmp_path / "x.json", program)
    (graph,) = adapter.PytorchExportedProgramAdapterImpl(
        program, {"const_element_count_limit": 0}
    ).convert()["graphs"]  # fmt: skip
    written = json.loads(path.read_text())
    assert list(written) == [graph.id]
    data = written[graph.id]
    read = builder.GraphNodeData(
        name=data["name"],
        results={node: builder.NodeDataResult(**one) for node, one in data["results"].items()},
        gradient=[builder.GradientItem(**stop) for stop in data["gradient"]],
    )
    theirs = json.loads(builder.ModelNodeData({graph.id: read}).to_json_string())[graph.id]
    assert {key: theirs[key] for key in data} == data
    namespace = {node.id: node.namespace for node in graph.nodes}
    assert data["results"].keys() <= namespace.keys()
    sums = {}
    for node, one in data["results"].items():
        group = namespace[node]
        while group:
            sums[group] = sums.get(group, 0.0) + one["value"]
            group = group.rpartition("/")[0]
    stacks = [node.meta.get("nn_module_stack", {}) for node in program.graph_module.graph.nodes]
    placed = {[layer for layer, _ in stack.values()][-1] for stack in stacks if stack}
    own = {row.layer: row.self_ms for row in profile if row.layer in placed}
    assert max(sums.values()) == pytest.approx(sum(own.values()))
    assert sum(own.values()) > 0.8 * profile.total_ms, "containers alone have no node"
    ends = {group.rsplit("_", 1)[1]: ms for group, ms in sums.items() if group.count("/") == 1}
    for layer, ms in ends.items():
        inside = [own[one] for one in own if one == layer or one.startswith(f"{layer}.")]
        assert ms == pytest.approx(sum(inside))
    assert len(ends) >= 2
