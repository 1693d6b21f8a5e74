"""The workbench's fusion and attention tabs: queries run, choices are applied, shown as applied,
and undone.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.jobs import queries
from paifuser_lab.jobs.queries import subject_of
from paifuser_lab.records import AttentionCost, AttentionLayer, Fusion, FusionMap
from tests.support.bench import TIMEOUT_S, ask, emptied, opened

TOKENS = 130  # more than two blocks of keys


class SelfAttention(nn.Module):
    """Self-attention over all tokens, and a site that can be fused."""

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
        self.attention = SelfAttention()

    def forward(self, image):
        features = self.act(self.second(self.act(self.norm(self.first(image)))))
        return self.attention(features.flatten(2).transpose(1, 2))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A workbench of a model that has both; `bench` resets it for each test."""
    work = lab.Workload(Small(), torch.randn(1, 3, 16, 16), name="small")
    short = dataclasses.replace(queries.QUERIES["attention"], seconds=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(queries.QUERIES, "attention", short)
        with opened(work, tmp_path_factory.mktemp("tabs")) as bench:
            yield bench


@pytest.fixture
def bench(shared):
    emptied(shared)
    shared.fusions = shared.attention_cost = None
    return shared


def options_of(bench, kind):
    return next((step.options for step in bench.recipe if step.kind == kind), None)


def fusion(*layers, **more):
    defaults = {"pattern": "convolution + relu", "runs": "oneDNN", "apart_ms": 2.0, "fused_ms": 1.0}
    return Fusion(layers=layers, **defaults | more)


def fusion_map(*fusions):
    return FusionMap(workload="small", machine="a machine", fusions=fusions)


# Fusion.


def test_a_request_runs_the_fusion_query(bench):
    nothing = {"has_step": False, "on": [], "summary": ""}
    assert "fusion" not in bench.views and bench.state["fused"] == nothing
    seen = []
    end = bench.session.observe(lambda state: seen.append(state.status))
    ask(bench, do="fusion")
    state = bench.wait(TIMEOUT_S)
    end()
    assert state.error is None and "fusing" in seen and subject_of("fusing")
    shown = [place["layers"] for place in bench.views["fusion"]["places"]]
    assert shown == [list(site.layers) for site in state.fusions.fusions]
    assert ["first", "norm", "act"] in shown


def test_a_switch_fuses_only_that_site_and_undo_withdraws_it(bench):
    bench.fusions = fusion_map(fusion("first", "norm", "act"), fusion("second"))
    ask(bench, do="fuse", place="first", is_on=True)
    assert options_of(bench, "fuse") == {"layers": ["first"]} and bench.state["fused"]["on"] == [
        "first"
    ], "before it is applied"
    state = bench.wait(TIMEOUT_S)
    assert state.error is None and state.variant.fusions is not None
    standing = {site.place: site.standing for site in state.variant.fusions.fusions}
    assert standing["first"] in ("fused", "slower") and standing["second"] == "off", (
        "other sites stay unfused"
    )
    fused = [site.place for site in state.variant.fusions.fused]
    shown = bench.state["fused"]
    assert (shown["has_step"], shown["on"]) == (True, fused) and "places" in shown["summary"]
    sent = [place["is_fused"] for place in bench.views["fusion"]["places"]]
    assert sent == [site.standing == "fused" for site in state.variant.fusions.fusions], (
        "the applied fusions are shown"
    )
    ask(bench, do="undo")
    assert len(bench.recipe) == 0 and bench.state["fused"]["on"] == []
    assert not bench.state["fused"]["has_step"]
    assert bench.wait(TIMEOUT_S).variant.fusions is None


def test_fuse_all_fuses_every_faster_site_and_can_be_switched_off(bench):
    ask(bench, do="fuse_all", is_on=True)
    state = bench.wait(TIMEOUT_S)
    assert options_of(bench, "fuse") == {} and state.error is None
    assert bench.views["fusion"]["places"], "the applied fusions are shown without a query"
    ask(bench, do="fuse_all", is_on=False)
    assert len(bench.recipe) == 0


def test_switches_in_a_row_before_any_query_are_taken_and_the_places_stay(bench):
    ask(bench, do="fuse_all", is_on=True)
    bench.wait(TIMEOUT_S)
    for place in ("first", "second"):
        ask(bench, do="fuse", place=place, is_on=False)
        assert bench.state["error"] is None and bench.views["fusion"]["places"]
    assert not {"first", "second"} & set(bench.state["fused"]["on"])


def test_a_switch_before_the_query_is_reported(bench):
    ask(bench, do="fuse", place="first", is_on=True)
    assert "What can be fused is not known yet" in bench.state["error"]


def test_an_unchanged_map_is_not_sent_again(bench):
    ask(bench, do="fuse_all", is_on=True)
    bench.wait(TIMEOUT_S)
    before = bench.views
    bench.session.set_error("something")
    bench.session.set_error(None)
    assert bench.views is before


# Attention.


def cost(**more):
    layer = AttentionLayer(layer="attention", heads=1, queries=144, keys=144, errors=(0.0, 0.1))
    defaults = {
        "kind": "topk",
        "keeps": (1.0, 0.5),
        "errors": (0.0, 0.1),
        "latency_ms": (2.0, 1.0),
        "dense_ms": 1.5,
        "layers": (layer,),
    }
    return AttentionCost(workload="small", machine="a machine", **defaults | more)


def test_the_attention_cost_is_measured_for_the_requested_kind(bench):
    seen = []
    end = bench.session.observe(lambda state: seen.append(state.status))
    ask(bench, do="attention_cost", kind="block")
    state = bench.wait(TIMEOUT_S)
    end()
    assert state.error is None and "attending" in seen and subject_of("attending")
    assert (state.attention_cost.kind, bench.views["attention"]["kind"]) == ("block", "block")
    assert bench.views["attention"]["able"] == ["attention"]


def test_a_share_of_keys_is_a_step_that_is_applied_and_undone(bench):
    bench.attention_cost = cost()
    assert bench.state["attending"] == {}
    ask(bench, do="attention", kind="topk", keep=0.5, layers=["attention"])
    assert (
        bench.recipe == lab.Recipe([{"attention": {"kind": "topk", "keep": 0.5}}])
        and bench.state["attending"]["topk"]["keep"] == 0.5
    )
    assert bench.state["taking_part"] == {}, "not known before it is applied"
    assert bench.wait(TIMEOUT_S).error is None
    assert bench.state["taking_part"] in ({"topk": []}, {"topk": ["attention"]}), (
        "a layer that would not be faster stays dense"
    )
    ask(bench, do="attention", kind="topk", keep=1.0, layers=["attention"])
    assert len(bench.recipe) == 1 and bench.state["attending"]["topk"]["keep"] == 1.0
    ask(bench, do="undo")
    assert bench.state["attending"]["topk"]["keep"] == 0.5
    ask(bench, do="attention", kind="topk", keep=0.5, layers=[])
    assert len(bench.recipe) == 0 and bench.state["attending"] == {}
