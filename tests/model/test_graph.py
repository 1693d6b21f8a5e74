"""The graph of one run: who made what from what, in which layer."""

from __future__ import annotations

import cProfile

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.model.dataflow import OUTPUT, Dataflow
from paifuser_lab.model.graph import Graph, observe
from paifuser_lab.model.weights import weights_hash
from tests.support.models import Small, Tied, ids, images


def seen(model: nn.Module, *inputs: Tensor) -> Graph:
    return observe(model.eval(), lambda: model(*inputs))


def test_operators_are_recorded_with_their_layers_in_order() -> None:
    graph = seen(Small(), images())
    assert list(dict.fromkeys(one.layer for one in graph.operations)) == [
        "conv",
        "norm",
        "relu",
        "",
        "head",
    ]
    conv, norm = (
        graph.of_layer("conv")[-1],
        next(one for one in graph.of_layer("norm") if one.reads),
    )
    assert conv.name == "convolution" and "batch_norm" in norm.name
    assert graph.maker(norm.reads[0]) is conv and conv.shapes == ((2, 8, 6, 6),)
    assert graph.readers[conv.makes[0]] == (norm,)
    assert (
        graph.maker(graph.weights["conv.weight"]) is None
        and graph.weights["conv.weight"] in conv.reads
    )
    assert graph.outputs == {graph.operations[-1].makes[0]}


def test_a_profiler_of_python_that_is_on_goes_on_after_an_observation() -> None:
    profiler = cProfile.Profile()
    with profiler:
        observe(Small(), lambda: None)
        sorted([2, 1])
    profiler.create_stats()
    assert any(function[2] == "<built-in method builtins.sorted>" for function in profiler.stats)


def test_a_layer_used_twice_is_entered_twice() -> None:
    line = nn.Linear(4, 4)
    graph = seen(nn.Sequential(line, nn.ReLU(), line), torch.ones(1, 4))
    assert graph.entries == {"": 1, "0": 2, "1": 1}
    assert len(graph.readers[graph.weights["0.weight"]]) == 2


def test_tied_weights_are_one_tensor_under_both_names() -> None:
    graph = seen(Tied(), ids())
    assert graph.weights["head.weight"] == graph.weights["table.weight"]
    assert {one.layer for one in graph.readers[graph.weights["head.weight"]]} == {"table", "head"}


def test_a_weight_read_outside_its_layer_is_seen() -> None:
    class Peeking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x) + self.line.weight.sum()

    graph = seen(Peeking(), torch.ones(1, 3))
    assert {one.layer for one in graph.readers[graph.weights["line.weight"]]} == {"line", ""}


def test_paths_lead_to_each_reader_of_an_output() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, return_indices=True)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            pooled, indices = self.pool(self.conv(x).relu_())
            return pooled.relu() + pooled, indices.float()

    flow = Dataflow(seen(Pooled(), torch.ones(1, 3, 8, 8)))
    names = [operation.name for operation in flow.nodes]
    conv = names.index("convolution")
    assert [names[reader] for reader in flow.readers(conv)] == ["relu_"]
    paths = flow.paths(conv, through=("relu", "relu_", "max_pool2d_with_indices"))
    assert sorted([names[node] for node in path] for path in paths) == [
        ["relu_", "max_pool2d_with_indices", "_to_copy"],
        ["relu_", "max_pool2d_with_indices", "add"],
        ["relu_", "max_pool2d_with_indices", "relu", "add"],
    ]
    assert [names[reader] for reader in flow.readers(names.index("add"))] == [OUTPUT]


def test_recording_changes_nothing_even_when_the_model_fails() -> None:
    model = Small()
    before = weights_hash(model)
    with pytest.raises(RuntimeError):
        seen(model, torch.ones(1, 9, 8, 8))
    seen(model, images())
    assert weights_hash(model) == before
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
