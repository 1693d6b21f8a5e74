"""The Python half of the widgets: what is sent, what is asked for, and the picture for where no
widget can live.
"""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import profiler
from paifuser_lab.widgets.details import as_measured
from paifuser_lab.widgets.recipe_edits import without
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.layers import NUMBERS, with_precision
from tests.support.models import Small, images

PATIENCE = 120.0
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def profile():
    return lab.profile(lab.Workload(Small(), images(), name="small"), runs=2, threads=1)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A workbench of a small model that has been looked at."""
    monkeypatch.chdir(tmp_path)
    made = []

    def make(model=None, **options):
        made.append(
            lab.Workbench(
                lab.Workload(model or Small(), images(), name="small", **options),
                rounds=1,
                seconds=0.1,
            )
        )
        made[-1].wait(PATIENCE)
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(bench, *requests):
    """As the page does: what is not yet served stays in the trait."""
    first = bench.served + 1
    bench.requests = [{**request, "id": first + place} for place, request in enumerate(requests)]


def test_a_profile_travels_as_columns_and_buffers(profile):
    data = packed(profile)
    assert data["layer"] == ["", "conv", "norm", "relu", "head"]
    assert numpy.frombuffer(data["parent"], "<i4").tolist() == [-1, 0, 0, 0, 0]
    kinds = numpy.frombuffer(data["kind"]["codes"], "<u2")
    assert [data["kind"]["names"][code] for code in kinds] == [row.kind for row in profile]
    for name in NUMBERS:
        sent = numpy.frombuffer(data["numbers"][name], "<f4")
        wanted = [getattr(row, name) for row in profile]
        assert sent == pytest.approx(
            [numpy.nan if one is None else one for one in wanted], rel=1e-6, nan_ok=True
        )


def test_every_record_with_a_view_is_shown_with_a_twin(profile):
    for record in (
        profile,
        profile.roofline,
        profiler.explain(profile),
        lab.hardware(),
        profiler.side_by_side(profile, profile),
    ):
        panel = lab.show(record)
        data, _ = panel._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in data and (
            "<svg" in data["text/html"] or "<" in data["text/html"]
        )
        panel.close()
    assert lab.show(profile).figure().png().startswith(b"\x89PNG")


def test_in_static_mode_there_is_a_picture_and_no_widget(profile, monkeypatch):
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    shown = lab.show(profile)._repr_mimebundle_()
    assert (
        "image/png" in shown
        and "text/html" in shown
        and not [name for name in shown if "widget" in name]
    )


def test_what_has_no_view_is_refused_by_name():
    with pytest.raises(
        TypeError, match="no widget for a Ceiling; there are widgets for Allocation"
    ):
        lab.show(lab.hardware().ceilings[0])


def test_a_recipe_is_shown_as_chips():
    panel = lab.show(lab.Recipe([{"fold": {"why": "exact"}}]))
    assert panel.data["steps"] == [{"label": "fold batch-norm", "kind": "fold", "why": "exact"}]


def test_panels_about_one_workload_share_the_selection(profile):
    table, dots, other = lab.show(profile), lab.show(profile.roofline), lab.show(lab.hardware())
    table.selected = "conv"
    assert (dots.selected, other.selected) == ("conv", "")
    dots.selected = ""
    assert table.selected == ""


def test_the_workbench_shows_the_model_as_it_is(bench):
    made = bench()
    assert made.data["layer"][1] == "conv" and made.state["status"] == "idle"
    figures = {one["name"]: one for one in made.state["figures"]}
    assert figures["latency"]["now"] > 0 and figures["metric"]["note"] == "no test data"
    assert {"roofline", "comparison", "hardware"} == set(made.views)
    assert "relu" in made.state["cannot"] and "conv" not in made.state["cannot"]


def test_a_click_on_a_precision_is_applied_and_measured_and_undone(bench):
    made = bench()
    ask(made, {"do": "precision", "layer": "head", "name": "bf16"})
    state = made.wait(PATIENCE)
    assert (
        made.recipe == lab.Recipe([{"precision": {"layers": {"head": "bf16"}}}])
        and state.variant is made.variant
    )
    assert (
        made.state["precisions"] == {"head": "bf16"} and made.state["changes"]["head"] == "in bf16"
    )
    ask(made, {"do": "precision", "layer": "head", "name": ""})
    assert len(made.recipe) == 0
    ask(made, {"do": "undo"}, {"do": "undo"})
    assert len(made.recipe) == 0 and made.served == 4 and not made.state["can_undo"]


def test_several_requests_at_once_are_served_in_order_and_each_once(bench):
    made = bench()
    ask(
        made,
        {"do": "choose", "step": {"fold": {}}},
        {"do": "choose", "step": {"layout": {}}},
        {"do": "undo"},
    )
    made.requests = [*made.requests]
    assert made.recipe == lab.Recipe(["fold"]) and made.served == 3
    made.requests = [{"id": 3, "do": "undo"}, {"id": 4, "do": "redo"}]
    assert made.recipe == lab.Recipe(["fold", "layout"])


def test_no_message_shows_an_answer_before_it_says_that_the_request_was_served(bench, monkeypatch):
    made = bench()
    sent = []
    monkeypatch.setattr(made, "_send", lambda message, buffers=None: sent.append(message["state"]))
    ask(made, {"do": "choose", "step": {"fold": {}}}, {"do": "undo"})
    made.wait(PATIENCE)
    states = [
        (one["served"], [chip["label"] for chip in one["state"]["recipe"]])
        for one in sent
        if "served" in one
    ]
    assert states == [(1, ["fold batch-norm"]), (2, [])]
    before = sent[: next(place for place, one in enumerate(sent) if "served" in one)]
    assert not any(one.get("state", {}).get("recipe") for one in before)


def test_a_step_that_is_dropped_is_the_one_that_was_seen_though_others_went_before(bench):
    made = bench()
    for step in ("fold", "layout", {"precision": {"layers": {"head": "bf16"}}}):
        ask(made, {"do": "choose", "step": step if isinstance(step, dict) else {step: {}}})
    first, second, third = (chip["label"] for chip in made.state["recipe"])
    ask(
        made,
        {"do": "drop", "index": 0, "label": first},
        {"do": "drop", "index": 1, "label": second},
    )
    assert [chip["label"] for chip in made.state["recipe"]] == [third]
    ask(made, {"do": "drop", "index": 0, "label": first})
    assert len(made.recipe) == 1, "it has gone already"


def test_a_tab_that_somebody_reads_stays_while_the_next_choice_is_measured(bench, monkeypatch):
    made = bench()
    seen = []
    made.observe(lambda change: seen.append("comparison" in change["new"]), "views")
    made.observe(lambda change: seen.append("comparison" in made.views), "state")
    ask(made, {"do": "choose", "step": {"fold": {}}})
    made.wait(PATIENCE)
    assert seen and all(seen)


def test_offers_promise_no_more_than_the_latency_that_is_shown(bench):
    made = bench()
    offer = {"label": "fold", "step": {"fold": {}}, "saves_ms": 50.0}
    slow = type("Slow", (), {"total_ms": 100.0})()
    state = replace(made.session.state, profile=slow)
    latency = made.comparison[made.comparison.baseline].latency_ms
    assert as_measured([offer], state)[0]["saves_ms"] == pytest.approx(latency / 2)
    assert (
        as_measured([offer], replace(state, status="measuring"))
        == [offer]
        == as_measured([offer], replace(state, comparison=None))
    )


def test_what_cannot_be_done_is_told_in_place_and_the_widget_lives_on(bench):
    made = bench()
    ask(made, {"do": "choose", "step": {"fald": {}}})
    assert "There is no step 'fald'" in made.state["error"]
    ask(made, {"do": "dance"})
    assert "does not know 'dance'" in made.state["error"]
    ask(made, {"do": "dismiss"})
    assert made.state["error"] is None
    ask(made, {"do": "precision", "layer": "nobody", "name": "bf16"})
    assert "matches no layer" in made.wait(PATIENCE).error and made.state["recipe"] == []


def test_the_recipe_can_be_saved_and_copied_and_set_from_python(bench):
    made = bench()
    made.recipe = lab.Recipe(["fold", "layout"], workload="small")
    ask(made, {"do": "drop", "index": 1}, {"do": "save"}, {"do": "code"})
    assert lab.Recipe.load(made.state["saved"]) == lab.Recipe(["fold"])
    assert "lab.Recipe" in made.state["code"]
    assert made.wait(PATIENCE).comparison["fold batch-norm"].latency_ms > 0


def test_choosing_a_layer_tells_its_facts_and_reasons(bench):
    made = bench()
    made.selected = "norm"
    (advised,) = [one for one in made.detail["reasons"] if one["step"] == {"fold": {}}]
    assert made.detail["layer"] == "norm" and advised["advice"].startswith(
        "fold batch-norm saves about "
    ), "named as its chip"
    made.selected = "no such layer"
    assert made.detail["facts"] == []


def test_a_model_that_fails_says_so_in_place(bench):
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(3, 3)

        def forward(self, x):
            return self.line(x)

    made = bench(Failing())
    assert (
        "fails on its example inputs at layer 'line'" in made.state["error"]
        and not made.session.state.is_busy
    )


def test_names_from_a_model_are_sent_as_text_only(bench):
    model = nn.Sequential()
    model.add_module(NASTY.replace(".", ""), nn.Conv2d(3, 4, 1))
    made = bench(model)
    assert made.data["layer"][1] == NASTY
    assert NASTY not in made.twin()


def test_taking_the_last_choice_of_a_precision_step_back_drops_it():
    recipe = lab.Recipe(["fold", {"precision": {"layers": {"a": "bf16", "b": "fp16"}}}])
    assert with_precision(recipe, "a", "") == lab.Recipe(
        ["fold", {"precision": {"layers": {"b": "fp16"}}}]
    )
    assert with_precision(with_precision(recipe, "a", ""), "b", "") == lab.Recipe(["fold"])
    assert without(recipe, 0)[0].kind == "precision"


def test_two_models_of_one_name_do_not_select_in_each_other():
    works = [
        lab.Workload(nn.Sequential(nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 8, 8)) for _ in range(2)
    ]
    first, second = (profiler.profile(work, seconds=0.05) for work in works)
    assert first.workload == second.workload == "Sequential"
    one, same, other = lab.show(first), lab.show(first.roofline), lab.show(second)
    one.selected = "0"
    assert (same.selected, other.selected) == ("0", "")


def test_the_workbench_and_a_panel_of_its_record_share_the_selection(bench):
    made = bench()
    table = lab.show(made.profile)
    made.selected = "conv"
    assert table.selected == "conv"
