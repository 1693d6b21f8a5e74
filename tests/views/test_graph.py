"""A model's graph: complete, folded without loss, laid out without boxes over each other."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab import zoo
from paifuser_lab.records.model_graph import ModelGraph
from paifuser_lab.views.graph import HEIGHT, WIDTH, Colours, Shade, drawn, laid_out, picture
from paifuser_lab.views.graph_colours import NUMBERS
from paifuser_lab.views.picture import Boxes, Labels, Line
from tests.support.models import Small

TINY = [name for name in zoo.names() if name.endswith("-tiny") and name not in zoo.trained_names()]


def blocks_of(graph: ModelGraph) -> list[str]:
    return sorted({block for around in graph.blocks.values() for block in around})


@pytest.fixture(scope="module")
def small() -> ModelGraph:
    return lab.Workload(Small(), torch.randn(2, 3, 8, 8)).graph()


@pytest.fixture(scope="module")
def swin() -> ModelGraph:
    return lab.load("swin-t-tiny").graph()


@pytest.mark.parametrize("name", TINY)
def test_each_operator_of_a_model_is_in_one_node_and_one_screen_tells_it(name):
    graph = lab.load(name).graph()
    assert not graph.note
    for unfolded in ((), graph.unfolded_at_first(), blocks_of(graph)):
        numbers = [number for node in graph.nodes(unfolded) for number in node.operators]
        assert sorted(numbers) == list(range(len(graph.operators)))
    shown = laid_out(graph, graph.unfolded_at_first())
    assert len(shown.nodes) <= max(24, len(graph.nodes(())))
    assert len(set(shown.spots)) == len(shown.nodes)
    assert {tensor.target for tensor in graph.tensors} >= {len(graph.operators) - 1}


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_folding_keeps_every_tensor_between_nodes(swin, data):
    unfolded = data.draw(st.sets(st.sampled_from(blocks_of(swin))))
    edges = swin.edges(unfolded)
    inside = {number: node.key for node in swin.nodes(unfolded) for number in node.operators}
    expected = {
        (inside[one.source], inside[one.target], one.name)
        for one in swin.tensors
        if inside[one.source] != inside[one.target]
    }
    assert {(e.source, e.target, one.name) for e in edges for one in e.tensors} == expected
    assert sum(len(edge.tensors) for edge in edges) == len(expected)


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_no_box_is_over_another_and_ranks_lead_down(swin, data):
    layout = laid_out(swin, data.draw(st.sets(st.sampled_from(blocks_of(swin)))))
    rows: dict[float, list[float]] = {}
    for x, y in layout.spots:
        rows.setdefault(round(y), []).append(x)
    for across in rows.values():
        across.sort()
        assert all(right - left >= WIDTH for left, right in pairwise(across))
    heights = sorted(rows)
    assert all(low - high > HEIGHT for high, low in pairwise(heights))
    assert layout.spots[0][1] == min(heights)


def test_shapes_and_bytes_are_those_of_the_tensors(small):
    nodes = {node.key: node for node in small.nodes(())}
    edges = {(nodes[e.source].label, nodes[e.target].label): e for e in small.edges(())}
    assert edges["conv", "norm"].text == "2×8×6×6"
    assert edges["conv", "norm"].bytes == 2 * 8 * 6 * 6 * 4
    assert edges["input", "conv"].text == "2×3×8×8"
    assert edges["head", "output"].text == "2×5"


def test_a_block_with_one_part_is_not_told_apart_from_it():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.outer = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            self.alone = nn.Sequential(nn.Linear(4, 2))

        def forward(self, x):
            return self.alone(self.outer(x))

    graph = lab.Workload(Wrapped(), torch.randn(1, 4)).graph()
    assert [node.key for node in graph.nodes(())] == ["#0", "outer", "alone.0", "#6"]
    assert [node.key for node in graph.nodes({"outer"})][1:3] == ["outer.0.0", "outer.0.1"]


def test_a_call_that_cannot_be_recorded_shows_the_layers_and_says_why():
    work = lab.Workload(Small(), torch.randn(2, 3, 8, 8))
    work.model.relu = nn.Softmax2d()
    work.model.relu.forward = lambda x: 1 / 0
    graph = work.graph()
    assert graph.note.startswith("The call could not be recorded (division by zero); these are")
    assert [node.key for node in graph.nodes(())] == ["conv", "norm", "relu", "head"]
    assert picture(graph).note == graph.note


def test_a_picture_has_a_box_for_each_node_with_its_shade_in_words(small):
    layout = laid_out(small, ())
    colours = Colours({"conv": Shade("compute", "2 ms")}, (("compute", "compute"),))
    shown = drawn(small, layout, colours)
    marks = shown.panels[0].marks
    boxes, stripes = (mark for mark in marks if isinstance(mark, Boxes))
    row = list(boxes.key).index("conv")
    assert stripes.tone[row] == "compute" and stripes.tone[row + 1] == "faint"
    assert boxes.tips.text(row) == (
        "conv\nConv2d, 1 operator\n2 ms\n2×3×8×8 (1.54 kB) in\n2×8×6×6 (2.3 kB) out"
    )
    assert any("Conv2d · 2 ms" in mark.texts for mark in marks if isinstance(mark, Labels))
    line = next(mark for mark in marks if isinstance(mark, Line))
    assert sum(map(math.isnan, line.x)) == len(layout.edges)


def test_what_takes_no_time_has_a_short_text():
    _, _, text = NUMBERS["time"]
    assert [text(ms) for ms in (0.0, 0.00038, 0.0334, 5.4)] == [
        "0 ms", "0 ms", "0.0334 ms", "5.40 ms",
    ]  # fmt: skip
