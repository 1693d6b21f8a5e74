"""The first layer at which an exported file leaves the live model is found and named."""

from __future__ import annotations

import math

import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from torch import nn

import paifuser_lab as lab
from paifuser_lab.converter import Exportable, export
from paifuser_lab.converter.layer_parity import Site, _opened_with, bisected, first_difference
from tests.support.models import OnGpu


class Chain(nn.Module):
    """Convolutions with an activation, a layer that is called twice, and a sum across."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.middle = nn.Conv2d(6, 6, 3, padding=1)
        self.last = nn.Conv2d(6, 6, 3, padding=1)
        self.head = nn.Linear(6, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.relu(self.stem(images))
        second = self.relu(self.middle(first))
        return self.head((self.last(second) + first).mean((2, 3)))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    work = lab.Workload(Chain().eval(), torch.rand(1, 3, 8, 8), name="chain")
    path = tmp_path_factory.mktemp("chain") / "model.onnx"
    export(work, "onnx", path, seconds=0)
    return Exportable.of(work), path


def damaged(path, layer, folder):
    """The file with the weight of one layer doubled."""
    model = onnx.load(str(path))
    (weight,) = [one for one in model.graph.initializer if one.name.endswith(f"{layer}.weight")]
    weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), weight.name))
    onnx.save(model, str(folder / "damaged.onnx"))
    return folder / "damaged.onnx"


@pytest.mark.parametrize("layer", ["stem", "middle", "last", "head"])
def test_a_layer_with_another_weight_is_named(exported, layer, tmp_path):
    exportable, path = exported
    found = first_difference(
        exportable, damaged(path, layer, tmp_path), exportable.tensors, tolerance=1e-4
    )
    assert found.layer == layer and found.error > 0.01 and found.compared == 4
    order = ["stem", "middle", "last", "head"]
    assert found.before == (order[order.index(layer) - 1] if layer != "stem" else "")
    assert f"'{layer}'" in found.sentence


def test_inputs_on_a_gpu_are_copied_for_the_file(exported):
    exportable, path = exported
    run = _opened_with(path, [], [OnGpu(tensor) for tensor in exportable.tensors])
    assert torch.allclose(*run(["output"]), exportable.reference[0], atol=1e-5)


def test_a_file_that_agrees_has_no_such_layer(exported):
    exportable, path = exported
    found = first_difference(exportable, path, exportable.tensors, tolerance=1e-4)
    assert found.layer == "" and found.before == "head"
    assert "All 4 compared layers are within" in found.sentence


def test_a_file_without_layers_says_so(exported, tmp_path):
    exportable, path = exported
    model = onnx.load(str(path))
    for node in model.graph.node:
        del node.metadata_props[:]
    onnx.save(model, str(tmp_path / "bare.onnx"))
    found = first_difference(exportable, tmp_path / "bare.onnx", exportable.tensors, 1e-4)
    assert found.compared == 0 and "does not say which layers" in found.sentence


errors = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=40)


@given(errors, st.floats(0, 1))
def test_the_found_site_is_past_and_the_one_before_it_within(values, tolerance):
    sites = [Site(str(at), "Conv", f"t{at}") for at in range(len(values))]
    place, seen = bisected(sites, lambda site: values[int(site.layer)], tolerance)
    assert place == len(values) or not values[place] <= tolerance
    assert place == 0 or values[place - 1] <= tolerance
    assert len(seen) <= max(1, len(values)).bit_length()


@given(st.integers(0, 40), st.integers(0, 40))
def test_where_errors_stay_the_first_one_is_found(within, past):
    values = [0.0] * within + [1.0] * past
    sites = [Site(str(at), "Conv", f"t{at}") for at in range(len(values))]
    assert bisected(sites, lambda site: values[int(site.layer)], 0.5)[0] == within
