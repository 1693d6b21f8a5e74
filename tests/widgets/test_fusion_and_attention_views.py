"""Fusions and the cost of sparse attention, as they are seen: the wire, the panels, their pictures,
and the steps that they lead to.
"""

from __future__ import annotations

import json
import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from paifuser_lab.records import AttentionCost, AttentionLayer, Fusion, FusionMap
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.attention import attending_now, attention_step, with_attention
from paifuser_lab.widgets.tabs.fusion import (
    chosen,
    fuse_options,
    is_slower,
    map_shown,
    with_all,
    with_place,
)

NASTY = "<img src=x onerror=alert(1)>"


def place(name, standing="fused", **more):
    known = {"pattern": "convolution + relu", "runs": "oneDNN", "apart_ms": 2.0, "fused_ms": 1.0}
    return Fusion(layers=(name, f"{name}.relu"), standing=standing, **known | more)


FOUND = FusionMap(
    workload="small",
    machine="a machine",
    fusions=(
        place("a", saved_bytes=10, error=1e-7),
        place("b", "slower", fused_ms=3.0, reason="it reorders its input"),
        place(
            "c", "apart", runs="", apart_ms=None, fused_ms=None, reason="its answer is read twice"
        ),
        place("d"),
    ),
)


def attending(name, *errors, **more):
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
        attending("x", 0.0, 0.1, 0.3),
        attending("y", reason="it returns its weights"),
        attending("z", 0.0, 0.01, math.inf, share=0.1),
    ),
)


# The wire.


def test_a_fusion_map_travels_place_by_place_with_its_numbers_as_buffers():
    data = packed(FOUND)
    assert data["layers"] == [["a", "a.relu"], ["b", "b.relu"], ["c", "c.relu"], ["d", "d.relu"]]
    standing = numpy.frombuffer(data["standing"]["codes"], "<u2")
    assert [data["standing"]["names"][code] for code in standing] == [
        one.standing for one in FOUND.fusions
    ]
    sent = {
        name: numpy.frombuffer(column, "<f4").tolist() for name, column in data["numbers"].items()
    }
    assert sent["apart_ms"] == pytest.approx([2, 2, math.nan, 2], nan_ok=True)
    assert sent["fused_ms"] == pytest.approx([1, 3, math.nan, 1], nan_ok=True)
    assert sent["saved_bytes"] == pytest.approx([10, math.nan, math.nan, math.nan], nan_ok=True)
    plain = {name: data[name] for name in ("title", "machine", "layers")}
    assert json.dumps(plain, allow_nan=False), "what is not a buffer is plain JSON"


def test_an_attention_cost_travels_with_each_layer_s_errors_and_nan_where_it_cannot_take_part():
    data = packed(COST)
    errors = numpy.frombuffer(data["layer_errors"], "<f8").reshape(3, 3)
    assert (
        errors[0].tolist() == [0.0, 0.1, 0.3]
        and numpy.isnan(errors[1]).all()
        and errors[2][2] == math.inf
    )
    assert numpy.frombuffer(data["keeps"], "<f8").tolist() == [1.0, 0.5, 0.25]
    assert (data["kind"], data["layer"], data["reason"]) == (
        "topk",
        ["x", "y", "z"],
        ["", "it returns its weights", ""],
    )
    assert json.dumps(
        {name: value for name, value in data.items() if not isinstance(value, bytes)},
        allow_nan=False,
    )


def test_what_was_not_timed_travels_too():
    data = packed(COST.model_copy(update={"latency_ms": (), "dense_ms": None, "values": ()}))
    assert data["latency_ms"] == b"" and data["dense_ms"] is None


# The panels.


@pytest.mark.parametrize(
    ("record", "view"), [(FOUND, "fusion"), (COST, "attention")], ids=["fusion", "attention"]
)
def test_a_record_is_shown_with_a_picture_where_no_widget_lives(record, view):
    panel = lab.show(record)
    assert panel.view == view and "<img" in panel.twin() and "<img" in panel.brief_twin()
    panel.close()


def test_names_of_layers_are_only_text():
    nasty = FOUND.model_copy(update={"fusions": (place(NASTY, reason=NASTY),)})
    panel = lab.show(nasty)
    assert panel.data["layers"][0][0] == NASTY and NASTY not in panel.twin()
    cost = COST.model_copy(update={"layers": (attending(NASTY, 0.0, 0.1, 0.2),)})
    assert NASTY not in lab.show(cost).twin()


def test_an_attention_panel_begins_with_the_most_kept_and_its_choice_is_a_step():
    panel = lab.show(COST)
    assert (panel.keep, panel.layers) == (1.0, ["x", "z"]) and panel.step == {
        "attention": {"kind": "topk", "keep": 1.0}
    }
    panel.keep, panel.layers = 0.25, ["z"]
    assert panel.step == {"attention": {"kind": "topk", "keep": 0.25, "layers": ["z"]}}
    assert panel.recipe == lab.Recipe([panel.step]) and panel.recipe.workload == "small"
    panel.layers = []
    assert panel.step == {} and len(panel.recipe) == 0


def test_the_page_chooses_by_setting_the_traits():
    panel = lab.show(COST)
    panel.set_state({"keep": 0.5, "layers": ["x"]})
    assert panel.step == {"attention": {"kind": "topk", "keep": 0.5, "layers": ["x"]}}


@pytest.mark.parametrize(
    ("trait", "value", "sentence"),
    [
        ("keep", 0.3, "0.3 is no share that was looked at; choose one of 1, 0.5, 0.25"),
        ("layers", ["moon"], "'moon' is no layer that attends; choose of x, z"),
        ("layers", ["x", "y"], "'y' cannot attend to a part of its keys: it returns its weights"),
    ],
)
def test_a_choice_that_there_is_not_is_refused_and_nothing_changes(trait, value, sentence):
    panel = lab.show(COST)
    with pytest.raises(RecipeError, match=sentence):
        setattr(panel, trait, value)
    assert (panel.keep, panel.layers) == (1.0, ["x", "z"])


# The pictures.


def test_the_picture_of_fusions_says_why_places_stay_apart_and_what_is_slower():
    words = " ".join(text.get_text() for text in lab.figure(FOUND).axes[0].texts)
    assert "its answer is read twice" in words and "2.00 ×" in words and "0.67 × slower" in words
    texts = lab.figure(FOUND).hover.values()
    assert sum("a + a.relu" in one for one in texts) == 2 and not any(
        "c + c.relu" in one for one in texts
    ), "two bars, or none"


def test_the_figure_of_attention_has_a_cell_for_each_layer_and_share_and_reasons_of_the_others():
    error, speed, heat = lab.figure(COST).axes
    assert [text.get_text() for text in heat.texts] == [
        "0",
        "0.1",
        "0.3",
        "it returns its weights",
        "0",
        "0.01",
        "∞",
    ]
    assert (
        error.lines[0].get_xdata().tolist() == speed.lines[0].get_xdata().tolist() == [2, 1, 0]
    ), "the most kept to the right"
    assert speed.lines[0].get_ydata().tolist() == pytest.approx([10 / 12, 10 / 9, 10 / 8])
    untimed = lab.figure(COST.model_copy(update={"latency_ms": ()}))
    assert "it was not timed" in [text.get_text() for text in untimed.axes[1].texts]


def test_records_without_a_layer_are_drawn_too():
    assert lab.figure(FOUND.model_copy(update={"fusions": ()})).png().startswith(b"\x89PNG")
    assert lab.figure(COST.model_copy(update={"layers": ()})).png().startswith(b"\x89PNG")


# What a switch makes of a recipe.


def switched(recipe, name, *, is_on, found=FOUND):
    options = fuse_options(recipe)
    return with_place(
        recipe, found, chosen(options, found) if options is not None else (), name, is_on=is_on
    )


def test_the_first_switch_fuses_only_that_place_and_the_last_one_takes_the_step_away():
    recipe = switched(lab.Recipe(["fold"]), "a", is_on=True)
    assert recipe == lab.Recipe(["fold", {"fuse": {"layers": ["a"]}}])
    recipe = switched(recipe, "d", is_on=True)
    assert fuse_options(recipe) == {"layers": ["a", "d"]}
    recipe = switched(switched(recipe, "a", is_on=False), "d", is_on=False)
    assert recipe == lab.Recipe(["fold"])


def test_where_all_that_gain_are_fused_a_switch_takes_one_out():
    recipe = with_all(lab.Recipe([]), is_on=True)
    assert fuse_options(recipe) == {}
    recipe = switched(recipe, "a", is_on=False)
    assert fuse_options(recipe) == {"off": ["a"]} and chosen(fuse_options(recipe), FOUND) == ("d",)
    assert fuse_options(switched(recipe, "a", is_on=True)) == {}
    assert len(with_all(recipe, is_on=False)) == 0


@pytest.mark.parametrize("before", [{}, {"layers": ["a"]}], ids=["all", "one"])
def test_a_place_that_is_slower_runs_as_one_where_somebody_wants_it_so(before):
    recipe = switched(lab.Recipe([{"fuse": before}]), "b", is_on=True)
    assert fuse_options(recipe)["on"] == ["b"] and "b" in chosen(fuse_options(recipe), FOUND)
    assert chosen(fuse_options(switched(recipe, "b", is_on=False)), FOUND) == chosen(before, FOUND)


def test_a_switch_leaves_the_step_where_it_stands():
    recipe = lab.Recipe(["fold", {"fuse": {"layers": ["a"]}}, "backend"])
    assert [step.kind for step in switched(recipe, "d", is_on=True)] == ["fold", "fuse", "backend"]
    assert [step.kind for step in with_all(recipe, is_on=True)] == ["fold", "fuse", "backend"]
    assert [step.kind for step in switched(recipe, "a", is_on=False)] == ["fold", "backend"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("moon", "'moon' is no place"), ("c", "'c' cannot run as one: its answer is read twice")],
)
def test_what_is_no_place_and_what_cannot_be_one_is_refused(name, sentence):
    with pytest.raises(RecipeError, match=sentence):
        switched(lab.Recipe([]), name, is_on=True)


@given(st.lists(st.tuples(st.sampled_from("abd"), st.booleans()), max_size=8), st.booleans())
def test_whatever_is_switched_the_places_that_are_on_are_those_last_switched_on(clicks, all_first):
    recipe = with_all(lab.Recipe([]), is_on=True) if all_first else lab.Recipe([])
    on = {"a", "d"} if all_first else set()
    for name, is_on in clicks:
        recipe = switched(recipe, name, is_on=is_on)
        on = on | {name} if is_on else on - {name}
        options = fuse_options(recipe)
        assert set(() if options is None else chosen(options, FOUND)) == on
        assert (options is None) == (not on), "a step that fuses nothing goes"


def test_a_place_that_is_off_counts_as_slower_by_its_times_as_the_step_counts_it():
    assert is_slower(place("a", "off", fused_ms=2.1)) and not is_slower(
        place("a", "off", fused_ms=1.95)
    )
    assert is_slower(place("a", "slower")) and not is_slower(place("a", "fused", fused_ms=9.0)), (
        "forced, it runs as one"
    )
    assert not is_slower(place("a", "off", apart_ms=None))


def test_what_the_recipe_did_is_shown_with_the_numbers_that_were_found_before():
    did = FOUND.model_copy(
        update={
            "fusions": (
                place("a", "off", apart_ms=None, fused_ms=None),
                place("new", fused_ms=None),
            )
        }
    )
    shown = map_shown(FOUND, did)
    assert [one.standing for one in shown.fusions] == ["off", "fused"]
    assert (shown.fusions[0].apart_ms, shown.fusions[0].saved_bytes, shown.fusions[1].fused_ms) == (
        2.0,
        10,
        None,
    )
    assert (
        map_shown(FOUND, None) is FOUND
        and map_shown(None, did) is did
        and map_shown(None, None) is None
    )


# What the attention button makes of a recipe.


def ask(**more):
    return {"do": "attention", "kind": "topk", "keep": 0.5, "layers": ["x", "z"]} | more


def test_a_share_is_a_step_and_another_share_takes_its_place():
    recipe = with_attention(
        lab.Recipe(["fold", {"precision": {"default": "bf16"}}]), COST, ask(layers=["z"])
    )
    assert attending_now(recipe)["topk"]["layers"] == ["z"]
    again = with_attention(recipe, COST, ask(keep=0.25))
    assert [step.kind for step in again] == [step.kind for step in recipe], "where it stood"
    assert attending_now(again)["topk"] == {"keep": 0.25}, (
        "the kind that goes without saying is not said"
    )
    assert len(with_attention(again, COST, ask(layers=[]))) == 2, "no layer: no step"


def test_another_kind_for_other_layers_stays():
    block = {"attention": {"kind": "block", "keep": 0.5, "layers": ["y"]}}
    recipe = with_attention(lab.Recipe([block]), COST, ask(layers=["x"]))
    assert set(attending_now(recipe)) == {"block", "topk"}
    assert set(attending_now(with_attention(recipe, COST, ask(layers=[])))) == {"block"}


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            ask(kind="moon"),
            "'moon' is no kind of sparse attention; choose one of window, topk, block",
        ),
        (ask(kind="block"), "'block' was not looked at, 'topk' was"),
        (ask(keep=True), "True is no share"),
        (ask(layers=["y"]), "'y' cannot attend"),
    ],
    ids=["kind", "other kind", "keep", "layer"],
)
def test_what_cannot_be_chosen_is_refused(request_, sentence):
    with pytest.raises(RecipeError, match=sentence):
        with_attention(lab.Recipe([]), COST, request_)


def test_without_a_look_there_is_nothing_to_choose():
    with pytest.raises(RecipeError, match="is not known yet; find it first"):
        with_attention(lab.Recipe([]), None, ask())


def test_the_layers_are_named_in_the_order_of_the_model():
    assert attention_step(COST, 0.5, ["z"])["attention"]["layers"] == ["z"]
    assert "layers" not in attention_step(COST, 0.5, ["z", "x"])["attention"]
