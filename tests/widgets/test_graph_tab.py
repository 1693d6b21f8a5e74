"""The Graph section: asked for, folded, coloured, and edits of the recipe for what is chosen."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from paifuser_lab.widgets.tabs.graph import Shown, edited, packed_graph
from tests.support.bench import opened, send
from tests.support.models import Small, images


@pytest.fixture(scope="module")
def work():
    return lab.load("resnet18-tiny")


@pytest.fixture(scope="module")
def bench(work, tmp_path_factory):
    with opened(work, tmp_path_factory.mktemp("graph")) as bench:
        send(bench, do="graph")
        yield bench


def test_the_page_asks_and_gets_boxes_with_edges_between(bench):
    view = bench.views["graph"]
    assert view["key"][0] == "#0" and "layer1.0" in view["key"]
    sources, targets = (numpy.frombuffer(view[name], "<i4") for name in ("sources", "targets"))
    edges = {(view["key"][s], view["key"][t]) for s, t in zip(sources, targets, strict=True)}
    assert {("conv1", "bn1"), ("maxpool", "layer1.0"), ("layer1.0", "layer1.1")} <= edges
    assert view["colour"] == "time" and {"limited by", "format"} <= set(view["colours"])


def test_a_block_unfolds_and_folds_and_what_is_inside_knows_it(bench):
    send(bench, do="graph_fold", block="layer1.0", isOpen=True)
    view = bench.views["graph"]
    assert "layer1.0.conv1" in view["key"] and "layer1.0" not in view["key"]
    assert view["block"][view["key"].index("layer1.0.conv1")] == "layer1.0"
    send(bench, do="graph_fold", block="layer1.0", isOpen=False)
    assert "layer1.0" in bench.views["graph"]["key"]
    send(bench, do="graph_fold", block="", isOpen=True)
    assert not any(bench.views["graph"]["canUnfold"])
    send(bench, do="graph_fold", block="", isOpen=False)
    assert "layer1" in bench.views["graph"]["key"]


def test_another_colour_changes_tones_and_legend(bench):
    send(bench, do="graph_colour", name="limited by")
    view = bench.views["graph"]
    assert view["colour"] == "limited by"
    assert {tone for tone, _ in view["legend"]} <= {"compute", "memory", "overhead"}
    send(bench, do="graph_colour", name="time")


def test_what_did_not_change_is_not_sent_again(bench):
    before = bench.views["graph"]["stamp"]
    bench.session.set_error("something else")
    assert bench.views["graph"]["stamp"] == before
    bench.session.set_error(None)


def test_a_format_for_a_block_is_one_for_each_layer_inside(bench):
    state = send(bench, do="graph_edit", kind="precision", layers=["layer1"], name="int8-weights")
    assert state.error is None
    chosen = bench.recipe[0].options["layers"]
    assert len(chosen) == 4 and set(chosen.values()) == {"int8-weights"}
    send(bench, do="undo")
    assert not len(bench.recipe)


def test_a_choice_without_weights_is_refused_in_a_sentence(bench):
    state = send(bench, do="graph_edit", kind="precision", layers=["maxpool"], name="int8")
    assert "no layer with a weight" in state.error and not len(bench.recipe)
    send(bench, do="dismiss")


def test_a_format_that_nothing_chosen_can_have_is_refused_with_the_reason():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
    work, empty = lab.Workload(model, torch.zeros(1, 3, dtype=torch.long)), lab.Recipe([])
    with pytest.raises(RecipeError, match=r"'0' cannot be in int8: there is no Embedding in int8"):
        edited(empty, work, "precision", ["0"], "int8")
    some = edited(empty, work, "precision", ["0", "1"], "int8")
    assert some[0].options["layers"] == {"1": "int8"}


def test_edits_keep_what_the_step_had(work):
    fused = edited(lab.Recipe([{"fuse": {"layers": ["conv1"]}}]), work, "fuse", ["layer1"])
    assert fused[0].options["layers"] == ["conv1", "layer1.*"]
    followed = edited(lab.Recipe([]), work, "fuse", ["conv1", "bn1", "relu"])
    assert followed[0].options == {"layers": ["conv1"]}, "it names the place of all three"
    with pytest.raises(RecipeError, match="no layer with a weight"):
        edited(lab.Recipe([]), work, "fuse", ["relu"])
    recipe = lab.Recipe([{"prune": {"layers": {"fc": 0.5}}}])
    cut = edited(recipe, work, "prune", ["conv1"])
    assert cut[0].options["layers"] == {"fc": 0.5, "conv1": 0.25}
    sparse = edited(lab.Recipe([]), work, "attention", ["a.b"])
    assert sparse[0].options["keep"] == 0.5
    assert sparse[0].options["layers"] == ["a.b"]
    with pytest.raises(RecipeError, match="no layer with a weight"):
        edited(recipe, work, "prune", ["relu"])


def test_fusing_or_sparse_attention_of_one_node_leaves_the_others_as_they_were(work):
    everywhere = lab.Recipe([{"fuse": {"off": ["conv1"]}}])
    assert edited(everywhere, work, "fuse", ["conv1"])[0].options == {"layers": ["*", "conv1"]}
    windows = {"attention": {"kind": "window"}}
    recipe = lab.Recipe([windows, {"attention": {"kind": "block", "keep": 0.25}}])
    assert edited(recipe, work, "attention", ["a"]) == recipe
    recipe = lab.Recipe([windows, {"attention": {"keep": 0.25, "layers": ["a"]}}])
    sparse = [step.options for step in edited(recipe, work, "attention", ["b"])]
    assert sparse == [{"kind": "window"}, {"keep": 0.25, "layers": ["a", "b"]}]


@pytest.mark.parametrize("key", ["0", "0.conv"])
def test_a_layer_and_a_block_name_places_that_can_be_fused(key):
    work = lab.Workload(nn.Sequential(Small()), images(), name="nested")
    variant = lab.apply(work, edited(lab.Recipe([]), work, "fuse", [key]))
    assert variant.fusions.at("0.conv").standing in ("fused", "slower")


def test_a_block_has_the_time_of_all_inside_and_no_operator_has_a_colour(work):
    profile = lab.profile(work, seconds=0.1)
    view = packed_graph(work.graph(), Shown(frozenset()), profile)
    heading = [text.split(" ")[0] for text in view["key"]]
    tips = view["rows"][0][0]["marks"][4]["tips"]
    texts = tips["figures"][0]["values"]
    texts = (
        [texts["names"][code] for code in numpy.frombuffer(texts["codes"], "<u2")]
        if isinstance(texts, dict)
        else texts
    )
    at = heading.index("layer1")
    assert float(texts[at].split()[0]) == pytest.approx(profile["layer1"].total_ms, rel=0.05)
    assert texts[heading.index("#0")] == ""
