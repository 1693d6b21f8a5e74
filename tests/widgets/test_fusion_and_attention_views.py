"""The views of fusions and of the cost of sparse attention: the data that the page is sent, the
panels, their figures, and the steps that they lead to.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from paifuser_lab.records import AttentionCost, AttentionLayer, Fusion, FusionMap
from paifuser_lab.views.attention_cost import chart
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.attention import (
    SECTION,
    attending_now,
    attention_step,
    with_attention,
)
from paifuser_lab.widgets.tabs.fusion import (
    chosen,
    fuse_options,
    is_slower,
    map_shown,
    summary,
    with_all,
    with_place,
)


def site(name, standing="fused", **more):
    defaults = {"pattern": "convolution + relu", "runs": "oneDNN", "apart_ms": 2.0, "fused_ms": 1.0}
    return Fusion(layers=(name, f"{name}.relu"), standing=standing, **defaults | more)


FUSIONS = FusionMap(
    workload="small",
    machine="a machine",
    fusions=(
        site("a", saved_bytes=10, error=1e-7),
        site("b", "slower", fused_ms=3.0, reason="it reorders its input"),
        site(
            "c", "apart", runs="", apart_ms=None, fused_ms=None, reason="its answer is read twice"
        ),
        site("d"),
    ),
)


def attention_layer(name, *errors, **more):
    return AttentionLayer(layer=name, heads=2, queries=8, keys=8, errors=errors, **more)


COST = AttentionCost(
    workload="small",
    machine="a machine",
    kind="topk",
    keeps=(1.0, 0.5, 0.25),
    errors=(0.0, 0.1, 0.2),
    latency_ms=(12.0, 9.0, 8.0),
    dense_ms=10.0,
    metric="accuracy",
    values=(0.9, 0.8, 0.7),
    dense_value=0.9,
    layers=(
        attention_layer("x", 0.0, 0.1, 0.3),
        attention_layer("y", reason="it returns its weights"),
        attention_layer("z", 0.0, 0.01, math.inf, share=0.1),
    ),
)


# The packed data.


def test_a_fusion_map_is_packed_by_site_with_what_is_said_of_it_on_and_off():
    data = packed(FUSIONS)
    a, b, c, d = data["places"]
    assert [site["layers"] for site in (a, b, c)] == [[n, f"{n}.relu"] for n in "abc"]
    assert [site["look"] for site in (a, b, c, d)] == ["off", "slower", "apart", "off"]
    assert [site["can_gain"] for site in (a, b, c, d)] == [True, False, False, True]
    assert (a["bars"], b["bars"][1], c["bars"]) == (
        [[2 / 3, "apart"], [1 / 3, "one"]],
        [1, "slower"],
        [],
    )
    speed, saved, error = data["columns"]
    assert speed["texts"] == ["2.00 ×", "0.67 ×, slower", "–", "2.00 ×"]
    assert speed["tones"] == ["good", "bad", "", "good"] and speed["values"][2] is None
    assert (saved["texts"][0], error["texts"][0], error["texts"][3]) == ("10 B", "1e-7", "–")
    assert a["on"]["sentence"].startswith("runs as one · convolution + relu · oneDNN · 2.00 ×")
    assert "10 B less through memory" in a["off"]["sentence"] and a["off"]["reason"] == ""
    assert b["on"]["sentence"].startswith("runs as one, and is slower so"), "forced, not praised"
    assert (b["off"]["reason"], b["on"]["reason"]) == ("it reorders its input", "")
    assert c["off"]["hint"] == "cannot be switched on: its answer is read twice"
    assert not c["has_facts"] and json.dumps(data, allow_nan=False)


def test_layers_share_the_beginning_of_their_paths_and_no_name_is_left_empty():
    def shared(*layers):
        (place,) = packed(FUSIONS.model_copy(update={"fusions": (joined(*layers),)}))["places"]
        return place["where"], place["names"]

    def joined(*layers):
        return site("a").model_copy(update={"layers": layers})

    assert shared("a.b.conv", "a.b.norm") == ("a.b.", ["conv", "norm"])
    assert shared("a.b", "a.b.c") == ("a.", ["b", "b.c"])
    assert shared("head") == ("", ["head"])
    assert shared("body.1.conv", "tail") == ("", ["body.1.conv", "tail"])


def test_the_summary_counts_the_sites_that_are_fused_could_be_would_be_slower_and_cannot():
    rest = " · 1 would be slower · 1 cannot be one"
    timed = "each timed by itself"
    none = f"Nothing runs as one: 2 of 4 places could, which would save 2.00 ms, {timed}"
    assert summary(FUSIONS, ()) == none + rest
    one = f"1 of 4 places run as one, which saves 1.00 ms, {timed} · 1 more could"
    assert summary(FUSIONS, {"a"}) == one + rest
    assert "which costs 1.00 ms" in summary(FUSIONS, {"b"})
    whole = FUSIONS.model_copy(update={"apart_ms": 1.12, "fused_ms": 1.0})
    assert " · the whole model 1.12 × as fast · " in summary(whole, {"a", "d"})
    assert "whole model" not in summary(whole, {"a"}), "it was timed otherwise"
    empty = FUSIONS.model_copy(update={"fusions": (), "notes": ("not fused: conv2d",)})
    assert summary(empty, ()).endswith("run as one. · not fused: conv2d")


def test_an_attention_cost_is_packed_with_the_error_of_each_layer_at_each_share():
    data = packed(COST)
    x, y, z = data["layers"]
    assert [error["text"] for error in x["errors"]] == ["0", "0.1", "0.3"]
    shares = [error["share"] for error in z["errors"]]
    assert shares[0] == 0.03 and shares[2] == 1, "nothing takes least, and infinity all"
    assert [error["look"] for error in z["errors"]] == ["pf-heat-below", "pf-heat-0", "pf-heat-8"]
    assert (y["reason"], y["errors"]) == ("it returns its weights", [])
    assert x["size"] == "8 × 2" and z["hint"].endswith("takes 10.0% of the model's time")
    assert [stop["text"] for stop in data["stops"]] == ["100 %", "50 %", "25 %"]
    assert [stop["is_slower"] for stop in data["stops"]] == [True, False, False]
    assert (data["kind"], data["able"]) == ("topk", ["x", "z"])


def test_an_untimed_attention_cost_is_packed():
    data = packed(COST.model_copy(update={"latency_ms": (), "dense_ms": None, "values": ()}))
    assert not any(stop["is_slower"] for stop in data["stops"])


# The panels.


def test_an_attention_panel_starts_with_the_largest_share_and_its_choice_is_a_step():
    panel = lab.show(COST)
    assert (panel.keep, panel.layers) == (1.0, ["x", "z"]) and panel.step == {
        "attention": {"kind": "topk", "keep": 1.0}
    }
    panel.keep, panel.layers = 0.25, ["z"]
    assert panel.step == {"attention": {"kind": "topk", "keep": 0.25, "layers": ["z"]}}
    assert panel.recipe == lab.Recipe([panel.step]) and panel.recipe.workload == "small"
    panel.layers = []
    assert panel.step == {} and len(panel.recipe) == 0


@pytest.mark.parametrize(
    ("trait", "value", "sentence"),
    [
        ("keep", 0.3, "the share 0.3 was not measured; choose one of 1, 0.5, 0.25"),
        ("layers", ["moon"], "'moon' is not an attention layer; choose of x, z"),
        ("layers", ["x", "y"], "'y' cannot use sparse attention: it returns its weights"),
    ],
)
def test_an_invalid_choice_raises_and_changes_nothing(trait, value, sentence):
    panel = lab.show(COST)
    with pytest.raises(RecipeError, match=sentence):
        setattr(panel, trait, value)
    assert (panel.keep, panel.layers) == (1.0, ["x", "z"])


# The figures.


def test_the_figure_of_attention_has_a_cell_per_layer_and_share_or_a_reason():
    error, speed, heat = lab.figure(COST).axes
    texts = [text.get_text() for text in heat.texts]
    assert texts == ["0.3", "0.1", "0", "–", "–", "–", "∞", "0.01", "0"], "the most kept last"
    assert "y: it returns its weights" in error.get_title(loc="left")
    assert [label.get_text() for label in heat.get_xticklabels()] == ["25 %", "50 %", "100 %"]
    times = next(line for line in speed.lines if len(line.get_xdata()) == 3).get_ydata()
    assert list(times) == pytest.approx([10 / 8, 10 / 9, 10 / 12])
    assert len(lab.figure(COST.model_copy(update={"latency_ms": ()})).axes) == 2


def test_a_share_tells_error_speed_and_metric_the_smallest_first():
    shown = chart(COST)
    tips = shown.cursor.tips
    assert shown.cursor.start == 2, "all keys"
    assert tips.text(2).splitlines() == [
        "100 % of the keys kept",
        "0 error of the output",
        "0.83 × as fast – slower",
        "12.0 ms",
        "0.9000 accuracy",
        "0.9000 accuracy with all keys",
    ]
    assert "1.25 × as fast" in tips.text(0).splitlines()
    errors, speeds = shown.panels
    assert errors.y.low < min(errors.marks[0].y) and max(errors.marks[0].y) == 0.2
    assert speeds.marks[-2].tone == ["main", "main", "bad"], "what is slower is marked as such"
    untimed = chart(COST.model_copy(update={"latency_ms": (), "values": ()}))
    assert len(untimed.panels) == 1 and untimed.note == "it was not timed"
    none = chart(COST.model_copy(update={"layers": ()}))
    assert none.panels == () and "No layer of this model attends" in none.sentence


# How a switch edits a recipe.


def switched(recipe, name, *, is_on, fusions=FUSIONS):
    options = fuse_options(recipe)
    return with_place(
        recipe, fusions, chosen(options, fusions) if options is not None else (), name, is_on=is_on
    )


def test_the_first_switch_fuses_only_that_site_and_switching_all_off_removes_the_step():
    recipe = switched(lab.Recipe(["fold"]), "a", is_on=True)
    assert recipe == lab.Recipe(["fold", {"fuse": {"layers": ["a"]}}])
    recipe = switched(recipe, "d", is_on=True)
    assert fuse_options(recipe) == {"layers": ["a", "d"]}
    recipe = switched(switched(recipe, "a", is_on=False), "d", is_on=False)
    assert recipe == lab.Recipe(["fold"])


def test_after_fuse_all_a_switch_excludes_one_site():
    recipe = with_all(lab.Recipe([]), is_on=True)
    assert fuse_options(recipe) == {}
    recipe = switched(recipe, "a", is_on=False)
    assert fuse_options(recipe) == {"off": ["a"]} and chosen(fuse_options(recipe), FUSIONS) == (
        "d",
    )
    assert fuse_options(switched(recipe, "a", is_on=True)) == {}
    assert len(with_all(recipe, is_on=False)) == 0


@pytest.mark.parametrize("before", [{}, {"layers": ["a"]}], ids=["all", "one"])
def test_a_slower_site_can_be_forced_on(before):
    recipe = switched(lab.Recipe([{"fuse": before}]), "b", is_on=True)
    assert fuse_options(recipe)["on"] == ["b"] and "b" in chosen(fuse_options(recipe), FUSIONS)
    assert chosen(fuse_options(switched(recipe, "b", is_on=False)), FUSIONS) == chosen(
        before, FUSIONS
    )


def test_a_switch_keeps_the_position_of_the_step():
    recipe = lab.Recipe(["fold", {"fuse": {"layers": ["a"]}}, "backend"])
    assert [step.kind for step in switched(recipe, "d", is_on=True)] == ["fold", "fuse", "backend"]
    assert [step.kind for step in with_all(recipe, is_on=True)] == ["fold", "fuse", "backend"]
    assert [step.kind for step in switched(recipe, "a", is_on=False)] == ["fold", "backend"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("moon", "'moon' is not a site"), ("c", "'c' cannot be fused: its answer is read twice")],
)
def test_switching_an_unknown_or_unfusable_site_raises(name, sentence):
    with pytest.raises(RecipeError, match=sentence):
        switched(lab.Recipe([]), name, is_on=True)


@given(st.lists(st.tuples(st.sampled_from("abd"), st.booleans()), max_size=8), st.booleans())
def test_the_fused_sites_are_those_last_switched_on(clicks, all_first):
    recipe = with_all(lab.Recipe([]), is_on=True) if all_first else lab.Recipe([])
    on = {"a", "d"} if all_first else set()
    for name, is_on in clicks:
        recipe = switched(recipe, name, is_on=is_on)
        on = on | {name} if is_on else on - {name}
        options = fuse_options(recipe)
        assert set(() if options is None else chosen(options, FUSIONS)) == on
        assert (options is None) == (not on), "a step that fuses nothing is removed"


def test_a_site_that_is_off_counts_as_slower_by_its_times_as_in_the_step():
    assert is_slower(site("a", "off", fused_ms=2.1)) and not is_slower(
        site("a", "off", fused_ms=1.95)
    )
    assert is_slower(site("a", "slower")) and not is_slower(site("a", "fused", fused_ms=9.0)), (
        "forced, it is fused"
    )
    assert not is_slower(site("a", "off", apart_ms=None))


def test_the_applied_fusions_are_shown_with_the_numbers_measured_before():
    applied = FUSIONS.model_copy(
        update={
            "fusions": (
                site("a", "off", apart_ms=None, fused_ms=None),
                site("new", fused_ms=None),
            )
        }
    )
    shown = map_shown(FUSIONS, applied)
    assert [fusion.standing for fusion in shown.fusions] == ["off", "fused"]
    assert (shown.fusions[0].apart_ms, shown.fusions[0].saved_bytes, shown.fusions[1].fused_ms) == (
        2.0,
        10,
        None,
    )
    assert (
        map_shown(FUSIONS, None) is FUSIONS
        and map_shown(None, applied) is applied
        and map_shown(None, None) is None
    )


# How the attention button edits a recipe.


def request(**more):
    return {"do": "attention", "kind": "topk", "keep": 0.5, "layers": ["x", "z"]} | more


def test_another_share_replaces_the_attention_step():
    recipe = with_attention(
        lab.Recipe(["fold", {"precision": {"default": "bf16"}}]), COST, request(layers=["z"])
    )
    assert attending_now(recipe)["topk"]["layers"] == ["z"]
    again = with_attention(recipe, COST, request(keep=0.25))
    assert [step.kind for step in again] == [step.kind for step in recipe], "in the same position"
    assert attending_now(again)["topk"] == {"keep": 0.25}, "the default kind is not named"
    assert len(with_attention(again, COST, request(layers=[]))) == 2, "no layer: no step"


def test_another_kind_for_other_layers_stays():
    block = {"attention": {"kind": "block", "keep": 0.5, "layers": ["y"]}}
    recipe = with_attention(lab.Recipe([block]), COST, request(layers=["x"]))
    assert set(attending_now(recipe)) == {"block", "topk"}
    assert set(attending_now(with_attention(recipe, COST, request(layers=[])))) == {"block"}


def test_an_invalid_attention_request_raises():
    for cost, invalid, sentence in (
        (COST, {"kind": "block"}, "'block' was not measured, 'topk' was"),
        (COST, {"keep": 0.3}, "the share 0.3 was not measured"),
        (COST, {"layers": ["y"]}, "'y' cannot use sparse attention"),
        (None, {}, "is not known yet; measure it first"),
    ):
        with pytest.raises(RecipeError, match=sentence):
            with_attention(lab.Recipe([]), cost, request(**invalid))


def test_the_layers_are_named_in_the_order_of_the_model():
    assert attention_step(COST, 0.5, ["z"])["attention"]["layers"] == ["z"]
    assert "layers" not in attention_step(COST, 0.5, ["z", "x"])["attention"]


@pytest.mark.parametrize(
    ("patterns", "shown"),
    [
        (["?"], ["x", "y.attend", "y.other"]),
        (["y"], ["y.attend", "y.other"]),
        (["*.attend", "x"], ["x", "y.attend"]),
    ],
)
def test_the_state_names_the_able_layers_that_a_pattern_matches_or_encloses(patterns, shown):
    inner = nn.ModuleDict({"attend": nn.Identity(), "other": nn.Identity(), "no": nn.Identity()})
    work = SimpleNamespace(model=nn.ModuleDict({"x": nn.Identity(), "y": inner}))
    layers = [attention_layer(name, 0.0, 0.1, 0.3) for name in ("x", "y.attend", "y.other")]
    unable = attention_layer("y.no", reason="it returns its weights")
    cost = COST.model_copy(update={"layers": (*layers, unable)})
    recipe = lab.Recipe([{"attention": {"keep": 0.5, "layers": patterns}}])
    state = SimpleNamespace(recipe=recipe, variant=None, attention_cost=cost)
    attending = SECTION.state(state, SimpleNamespace(work=work))["attending"]
    assert attending == {"topk": {"keep": 0.5, "layers": shown}}
