"""The workbench's tabs of fusion and of attention: what is asked for is found, switched, applied,
shown as it was done, and undone.
"""

from __future__ import annotations

import dataclasses

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.records import AttentionCost, AttentionLayer, Fusion, FusionMap
from paifuser_lab.session import queries
from paifuser_lab.session.queries import subject_of

PATIENCE = 120.0
TOKENS = 130  # more than two blocks of keys


class Attending(nn.Module):
    """Looks at all tokens, and has a place that can run as one."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.act = nn.ReLU()
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        query, key, value = (
            part(tokens).unsqueeze(1) for part in (self.query, self.key, self.value)
        )
        return self.head(self.act(F.scaled_dot_product_attention(query, key, value).squeeze(1)))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.act, self.second = (
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3),
        )
        self.attention = Attending()

    def forward(self, image):
        made = self.act(self.second(self.act(self.norm(self.first(image)))))
        return self.attention(made.flatten(2).transpose(1, 2))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A workbench of a model that has both; each test finds it empty by `bench`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("tabs"))
        patch.setattr("paifuser_lab.session.session.PROFILE_S", 0.05)
        patch.setitem(
            queries.QUERIES,
            "attention",
            dataclasses.replace(queries.QUERIES["attention"], seconds=0.2),
        )
        made = lab.Workbench(
            lab.Workload(Small(), torch.randn(1, 3, 16, 16), name="small"), rounds=1, seconds=0.1
        )
        made.wait(PATIENCE)
        yield made
        made.close()


@pytest.fixture
def bench(shared):
    shared.recipe = lab.Recipe([], workload="small")
    shared.fusions = shared.attention_cost = None
    shared.session.set_error(None)
    shared.wait(PATIENCE)
    return shared


def ask(bench, **request):
    bench.requests = [{**request, "id": bench.served + 1}]


def options_of(bench, kind):
    return next((step.options for step in bench.recipe if step.kind == kind), None)


def fusion(*layers, **more):
    known = {"pattern": "convolution + relu", "runs": "oneDNN", "apart_ms": 2.0, "fused_ms": 1.0}
    return Fusion(layers=layers, **known | more)


def by_hand(*fusions):
    return FusionMap(workload="small", machine="a machine", fusions=fusions)


# Fusion.


def test_what_can_be_fused_is_found_when_somebody_asks(bench):
    assert "fusion" not in bench.views and bench.state["fused"] == {"has_step": False, "on": []}
    seen = []
    end = bench.session.observe(lambda state: seen.append(state.status))
    ask(bench, do="fusion")
    state = bench.wait(PATIENCE)
    end()
    assert state.error is None and "fusing" in seen and subject_of("fusing")
    assert bench.views["fusion"]["layers"] == [list(one.layers) for one in state.fusions.fusions]
    assert ["first", "norm", "act"] in bench.views["fusion"]["layers"]


def test_a_switch_fuses_that_place_only_and_undo_takes_it_back(bench):
    bench.fusions = by_hand(fusion("first", "norm", "act"), fusion("second"))
    ask(bench, do="fuse", place="first", is_on=True)
    assert options_of(bench, "fuse") == {"layers": ["first"]} and bench.state["fused"]["on"] == [
        "first"
    ], "before it is applied"
    state = bench.wait(PATIENCE)
    assert state.error is None and state.variant.fusions is not None
    did = {one.place: one.standing for one in state.variant.fusions.fusions}
    assert did["first"] in ("fused", "slower") and did["second"] == "off", (
        "what nobody asked for stays apart"
    )
    assert bench.state["fused"] == {
        "has_step": True,
        "on": [one.place for one in state.variant.fusions.fused],
    }
    names = numpy.array(bench.views["fusion"]["standing"]["names"])
    sent = names[numpy.frombuffer(bench.views["fusion"]["standing"]["codes"], "<u2")].tolist()
    assert sent == [one.standing for one in state.variant.fusions.fusions], (
        "what is shown is what was done"
    )
    ask(bench, do="undo")
    assert len(bench.recipe) == 0 and bench.state["fused"] == {"has_step": False, "on": []}
    assert bench.wait(PATIENCE).variant.fusions is None


def test_all_that_gain_are_fused_at_once_and_none_again(bench):
    ask(bench, do="fuse_all", is_on=True)
    state = bench.wait(PATIENCE)
    assert options_of(bench, "fuse") == {} and state.error is None
    assert bench.views["fusion"]["layers"], "what was done is shown though nobody looked before"
    ask(bench, do="fuse_all", is_on=False)
    assert len(bench.recipe) == 0


def test_a_switch_after_fuse_all_takes_that_place_out_and_the_other_steps_stay(bench):
    bench.recipe = lab.Recipe(["fold"])
    bench.fusions = by_hand(fusion("first", "norm", "act"), fusion("second"))
    ask(bench, do="fuse_all", is_on=True)
    ask(bench, do="fuse", place="second", is_on=False)
    assert options_of(bench, "fuse")["off"][-1:] == ["second"] and [
        step.kind for step in bench.recipe
    ] == ["fold", "fuse"]
    assert bench.wait(PATIENCE).error is None


def test_what_is_slower_is_fused_where_somebody_wants_it(bench):
    bench.fusions = by_hand(
        fusion("first", "norm", "act"), fusion("second", standing="slower", fused_ms=3.0)
    )
    ask(bench, do="fuse", place="second", is_on=True)
    assert options_of(bench, "fuse") == {"layers": ["second"], "on": ["second"]}
    state = bench.wait(PATIENCE)
    assert state.error is None and bench.state["fused"]["on"] == ["second"]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("moon", "'moon' is no place"), ("second", "'second' cannot run as one: it is read twice")],
)
def test_a_switch_that_there_is_not_is_told_in_place(bench, place, sentence):
    bench.fusions = by_hand(
        fusion("first"), fusion("second", standing="apart", reason="it is read twice")
    )
    ask(bench, do="fuse", place=place, is_on=True)
    assert sentence in bench.state["error"] and len(bench.recipe) == 0


def test_without_a_query_there_is_nothing_to_switch(bench):
    ask(bench, do="fuse", place="first", is_on=True)
    assert "Nothing is known yet of what can be fused" in bench.state["error"]


def test_a_map_of_another_model_is_refused(bench):
    with pytest.raises(
        lab.PaifuserError,
        match="The fusion map of small has a layer 'elsewhere' that small has not",
    ):
        bench.fusions = by_hand(fusion("first", "elsewhere"))
    assert bench.fusions is None


def test_the_map_is_sent_once_however_often_the_state_changes(bench):
    ask(bench, do="fuse_all", is_on=True)
    bench.wait(PATIENCE)
    before = bench.views
    bench.session.set_error("something")
    bench.session.set_error(None)
    assert bench.views is before


# Attention.


def cost(**more):
    layer = AttentionLayer(layer="attention", heads=1, queries=144, keys=144, errors=(0.0, 0.1))
    known = {
        "kind": "topk",
        "keeps": (1.0, 0.5),
        "errors": (0.0, 0.1),
        "latency_ms": (2.0, 1.0),
        "dense_ms": 1.5,
        "layers": (layer,),
    }
    return AttentionCost(workload="small", machine="a machine", **known | more)


def test_what_attention_costs_is_found_for_the_kind_that_was_asked_for(bench):
    seen = []
    end = bench.session.observe(lambda state: seen.append(state.status))
    ask(bench, do="attention_cost", kind="block")
    state = bench.wait(PATIENCE)
    end()
    assert state.error is None and "attending" in seen and subject_of("attending")
    assert (state.attention_cost.kind, bench.views["attention"]["kind"]) == ("block", "block")
    assert bench.views["attention"]["layer"] == ["attention"]


def test_a_share_is_a_step_that_is_applied_and_undone(bench):
    bench.attention_cost = cost()
    assert bench.state["attending"] == {}
    ask(bench, do="attention", kind="topk", keep=0.5, layers=["attention"])
    assert (
        bench.recipe == lab.Recipe([{"attention": {"kind": "topk", "keep": 0.5}}])
        and bench.state["attending"]["topk"]["keep"] == 0.5
    )
    assert bench.state["taking_part"] == {}, "nobody knows before it is applied"
    assert bench.wait(PATIENCE).error is None
    assert bench.state["taking_part"] in ({"topk": []}, {"topk": ["attention"]}), (
        "where it would not be faster nothing is left out"
    )
    ask(bench, do="attention", kind="topk", keep=1.0, layers=["attention"])
    assert len(bench.recipe) == 1 and bench.state["attending"]["topk"]["keep"] == 1.0
    ask(bench, do="undo")
    assert bench.state["attending"]["topk"]["keep"] == 0.5
    ask(bench, do="attention", kind="topk", keep=0.5, layers=[])
    assert len(bench.recipe) == 0 and bench.state["attending"] == {}


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"do": "attention_cost", "kind": "moon"}, "'moon' is no kind of sparse attention"),
        (
            {"do": "attention", "kind": "topk", "keep": 0.3, "layers": []},
            "0.3 is no share that was looked at",
        ),
        (
            {"do": "attention", "kind": "topk", "keep": 0.5, "layers": ["moon"]},
            "'moon' is no layer that attends",
        ),
    ],
    ids=["kind", "share", "layer"],
)
def test_what_cannot_be_attended_to_is_told_in_place(bench, request_, sentence):
    bench.attention_cost = cost()
    ask(bench, **request_)
    assert sentence in bench.state["error"] and len(bench.recipe) == 0


def test_a_cost_of_another_model_is_refused(bench):
    stranger = AttentionLayer(layer="elsewhere", heads=1, queries=8, keys=8, errors=(0.0, 0.1))
    with pytest.raises(
        lab.PaifuserError,
        match="The attention cost of small has a layer 'elsewhere' that small has not",
    ):
        bench.attention_cost = cost(layers=(stranger,))
    assert bench.attention_cost is None
