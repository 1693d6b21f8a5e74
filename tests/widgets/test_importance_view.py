"""How much each channel matters, as it is seen: the wire, the panel that chooses, the drawing, the
workbench and its worker.
"""

from __future__ import annotations

import math
import time

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab import saliency
from paifuser_lab.figures import importance as drawing
from paifuser_lab.records import Importance, LayerImportance, LayerProfile
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.importance import with_pruning
from paifuser_lab.widgets.tabs.layers import output_width

PATIENCE = 120.0
pytestmark = pytest.mark.usefixtures("as_it_was")
NASTY = "<img src=x onerror=alert(1)>"


def found(*rows, **more):
    known = {
        "workload": "small",
        "machine": "a machine",
        "method": "magnitude",
        "unit": "A sentence.",
        "examples": 8,
    }
    return Importance(**known | more, rows=rows)


def layer(name, values, **more):
    return LayerImportance(
        layer=name, kind="Conv2d", channels=len(values), values=tuple(values), **more
    )


CONV = layer("conv", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0), errors=(0.45,) * 8)
HEAD = layer(
    "head",
    (1.0,) * 5,
    is_answer=True,
    note="its channels are the model's answer: none of them can go",
)
FOUND = found(CONV, HEAD)


def ask(panel, **request):
    panel.requests = [{**request, "id": panel.served + 1}]


def floats(data):
    return numpy.frombuffer(data, "<f4").tolist()


def whole(data):
    return numpy.frombuffer(data, "<i4").tolist()


def test_an_importance_travels_as_columns_and_buffers():
    data = packed(
        found(CONV, HEAD, LayerImportance(layer="odd", kind="Linear", channels=3, note="why"))
    )
    assert (
        data["layer"] == ["conv", "head", "odd"]
        and data["title"] == "small: how much each channel matters"
    )
    assert [whole(data[name]) for name in ("channels", "judged", "is_answer")] == [
        [8, 5, 3],
        [8, 5, 0],
        [0, 1, 0],
    ]
    assert (
        floats(data["value"])[:8] == pytest.approx([value / 4.5 for value in CONV.values])
        and len(floats(data["value"])) == 13
    )
    assert floats(data["error"])[:8] == pytest.approx([0.1] * 8) and all(
        math.isnan(one) for one in floats(data["error"])[8:]
    )
    assert floats(data["mean"]) == [4.5, 1, 0]
    assert [
        data["note"]["names"][code] for code in numpy.frombuffer(data["note"]["codes"], "<u2")
    ] == ["", HEAD.note, "why"]


def test_what_the_page_counts_from_the_wire_is_what_python_counts():
    generator = numpy.random.default_rng(0)
    row = layer("conv", generator.lognormal(size=500).tolist())
    sent = numpy.asarray(floats(packed(found(row))["value"]))
    for threshold in [*generator.uniform(0, 3, 50), *sent[:50]]:
        assert row.kept(threshold) == max(1, int((sent >= threshold).sum()))


def test_a_layer_s_threshold_is_kept_as_a_number_of_channels_and_given_as_a_recipe():
    panel = lab.show(FOUND)
    assert (
        panel.view == "importance"
        and panel.kept == {"conv": 8, "head": 5}
        and len(panel.recipe) == 0
    )
    ask(panel, do="keep", layer="conv", threshold=1.0, kept=4)
    assert panel.kept == {"conv": 4, "head": 5} and panel.served == 1 and panel.threshold == 0
    assert (
        panel.recipe
        == lab.Recipe([{"prune": {"layers": {"conv": 0.5}, "importance": "magnitude"}}])
        and panel.recipe.workload == "small"
    )
    panel.kept = {"conv": 2}
    assert panel.kept == {"conv": 2, "head": 5} and panel.recipe[0].options["layers"] == {
        "conv": 0.75
    }


def test_one_threshold_counts_for_all_layers_also_for_one_that_went_its_own_way():
    panel = lab.show(FOUND)
    panel.threshold = 0.8
    assert panel.kept == {"conv": 5, "head": 5}
    ask(panel, do="keep", layer="conv", threshold=1.5, kept=2)
    ask(panel, do="keep", layer="", threshold=0.8, kept=10)
    assert panel.kept == {"conv": 5, "head": 5} and panel.threshold == 0.8
    ask(panel, do="keep", layer="", threshold=99.0, kept=6)
    assert panel.kept == {"conv": 1, "head": 5}, "one channel stays, and the answer whole"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda panel: ask(panel, do="keep", layer="nobody", threshold=1.0, kept=1),
            "'nobody' is no layer of this importance",
        ),
        (lambda panel: ask(panel, do="dance"), "does not know 'dance'"),
        (
            lambda panel: setattr(panel, "kept", {"conv": 0}),
            "'conv' cannot keep 0 channels; it has 8",
        ),
        (lambda panel: setattr(panel, "kept", {"conv": 9}), "'conv' cannot keep 9 channels"),
        (lambda panel: setattr(panel, "kept", {"conv": True}), "'conv' cannot keep True channels"),
        (
            lambda panel: setattr(panel, "kept", {"head": 4}),
            "'head' cannot keep 4 channels; its channels are the model's answer",
        ),
        (lambda panel: setattr(panel, "threshold", -1.0), "-1.0 is no threshold"),
        (lambda panel: setattr(panel, "threshold", math.nan), "nan is no threshold"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_changes(change, sentence):
    panel = lab.show(FOUND)
    panel.threshold = 0.8
    with pytest.raises(lab.PaifuserError, match=sentence):
        change(panel)
    assert panel.kept == {"conv": 5, "head": 5} and panel.threshold == 0.8


def test_the_panel_shows_a_picture_where_no_widget_lives_and_names_are_only_text(monkeypatch):
    panel = lab.show(found(layer(NASTY, (1.0, 2.0))))
    assert panel.data["layer"] == [NASTY] and NASTY not in panel.twin() and "<img" in panel.twin()
    assert repr(panel).startswith("ImportancePanel(Importance(small")
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    assert "image/png" in panel._repr_mimebundle_()


@pytest.mark.parametrize("dark", [False, True])
def test_the_drawing_has_the_layers_their_bars_and_how_many_are_far_below(dark):
    figure = lab.figure(
        found(CONV, HEAD, LayerImportance(layer="odd", kind="Linear", channels=3, note="why")),
        dark=dark,
    )
    words = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"conv", "head", "odd", "8", "A sentence.", "2 (25%)", "the answer", "why"} <= words
    assert len(figure.axes[0].collections) == 3, (
        "the bars of a layer above half the mean, those below, and those of the answer"
    )


def test_of_many_layers_the_drawing_shows_the_first_and_says_how_many_are_left_out():
    many = found(*(layer(f"block.{index}", [1.0] * 5000) for index in range(drawing.SHOWN + 3)))
    words = {text.get_text() for axes in lab.figure(many).axes for text in axes.texts}
    assert (
        "3 more left out" in words
        and "block.39" in words
        and "block.40" not in words
        and "5,000" in words
    )


# The workbench.


def test_the_workbench_shows_an_importance_that_it_is_given_and_refuses_one_of_another_model(bench):
    assert bench.importance is None and "importance" not in bench.views
    bench.importance = FOUND
    assert bench.importance is FOUND and bench.views["importance"]["layer"] == ["conv", "head"]
    with pytest.raises(
        lab.PaifuserError,
        match="The importance of small has a layer 'elsewhere' that small has not",
    ):
        bench.importance = found(layer("elsewhere", (1.0,)))
    assert bench.importance is FOUND


def test_a_click_has_the_worker_find_it_in_the_background(bench):
    seen = []
    end = bench.session.observe(lambda state: seen.append((state.status, state.total)))
    ask(bench, do="importance")
    state = bench.wait(PATIENCE)
    end()
    assert ("weighing", 20) in seen and state.error is None
    assert state.importance.method == "magnitude" and "has no loss" in state.importance.notes[0]
    assert bench.views["importance"]["layer"] == ["conv", "head"]
    assert bench.importance["conv"].values == pytest.approx(
        bench.session.work.model.conv.weight.detach().flatten(1).norm(dim=1).tolist()
    )


def test_stop_ends_it_and_what_was_found_is_kept(bench, monkeypatch):
    def find(work, *, seconds, should_stop):
        bench.session.stop()
        while not should_stop():
            time.sleep(0.01)
        return FOUND.model_copy(update={"is_interrupted": True})

    monkeypatch.setattr(saliency, "importance", find)
    bench.session.query("importance", seconds=1e6)
    assert bench.wait(PATIENCE).importance.is_interrupted
    with pytest.raises(lab.PaifuserError, match="0 seconds are none"):
        bench.session.query("importance", seconds=0)


def test_two_queries_run_one_after_the_other(bench, monkeypatch):
    monkeypatch.setattr(saliency, "importance", lambda work, **options: FOUND)
    monkeypatch.setattr(saliency, "sensitivity", lambda work, **options: None)
    bench.session.query("sensitivity", 1)
    bench.session.query("importance", 1)
    assert bench.wait(PATIENCE).importance is FOUND


def test_the_end_of_a_drag_chooses_a_step_and_back_at_all_takes_it_away(bench):
    bench.importance = FOUND
    ask(bench, do="prune", layer="conv", ratio=0.5, kept=4)
    assert bench.recipe == lab.Recipe(
        [{"prune": {"layers": {"conv": 0.5}, "importance": "magnitude"}}]
    )
    assert bench.state["pruned"] == {"conv": 0.5}
    ask(bench, do="prune", layer="conv", ratio=0.25, kept=6)
    assert len(bench.recipe) == 1 and bench.state["pruned"] == {"conv": 0.25}, (
        "the newer choice takes the older one's place"
    )
    state = bench.wait(PATIENCE)
    assert state.error is None and state.variant.module.conv.out_channels == 6, (
        "exactly what was kept, whatever the hardware likes"
    )
    bench.session.undo()
    assert bench.state["pruned"] == {"conv": 0.5}
    ask(bench, do="prune", layer="conv", ratio=0.0, kept=8)
    assert len(bench.recipe) == 0


@pytest.mark.parametrize("method", ["fisher", "magnitude", "taylor", "batch-norm"])
def test_the_workbench_says_how_the_step_cuts_by_what_is_shown(bench, method):
    assert bench.state["cut_by"] == ""
    bench.importance = found(CONV, HEAD, method=method)
    shown = bench.state["cut_by"]
    assert shown.startswith(f"The step prune with importance: {method} removes the channels")
    with bench.session.paused():
        bench.recipe = lab.Recipe(
            [{"prune": {"ratio": 0.5, "importance": "random"}}], workload="small"
        )
        assert bench.state["cut_by"].startswith(
            f"Shown: {method}. The step prune in the recipe cuts by random: "
        ), "the recipe's importance is what cuts"
        bench.recipe = lab.Recipe([{"prune": {"ratio": 0.5}}], workload="small")
        assert ("cuts by magnitude: " in bench.state["cut_by"]) == (method != "magnitude"), (
            "the workload has no loss"
        )


def test_a_panel_alone_says_how_the_step_cuts_by_what_it_shows():
    assert "importance: magnitude removes" in lab.show(FOUND).data["cut_by"]
    alone = lab.show(found(CONV, method="fisher")).data["cut_by"]
    assert alone.startswith("The step prune with importance: fisher removes the channels with the ")
    assert (
        lab.show(found(CONV, method="fisher", cut_by="A sentence of the record.")).data["cut_by"]
        == "A sentence of the record."
    )


def test_one_threshold_for_all_layers_chooses_for_all_and_leaves_the_answer(bench):
    ask(bench, do="prune", layer="", threshold=0.8, kept=10)
    assert "find the importance first" in bench.state["error"] and len(bench.recipe) == 0
    bench.importance = FOUND
    ask(bench, do="prune", layer="", threshold=0.8, kept=10)
    assert bench.state["pruned"] == {"conv": 0.375}
    ask(bench, do="prune", layer="", threshold=0.0, kept=13)
    assert bench.state["pruned"] == {}


def test_what_is_asked_of_all_layers_stays_when_one_goes_back():
    general = with_pruning(
        lab.Recipe([{"prune": {"ratio": 0.5, "layers": {"a": 0.1}}}]), {"a": 0}, "magnitude"
    )
    assert general[0].options == {"ratio": 0.5}
    seen = with_pruning(lab.Recipe(["fold"]), {"a": 0.5}, "fisher")
    assert seen[1].options == {"layers": {"a": 0.5}, "importance": "fisher"}, (
        "the step cuts by what was shown"
    )


def test_the_table_is_told_the_channels_that_layers_have_and_had(bench):
    assert bench.state["channels"] == {"conv": [8, 8], "head": [5, 5]}
    assert bench.live == {}


@pytest.mark.parametrize(
    ("kind", "shape", "width"),
    [
        ("Conv2d", (8, 3, 3, 3), 8),
        ("ConvTranspose2d", (3, 8, 2, 2), 8),
        ("Linear", (5, 8), 5),
        ("Embedding", (11, 6), 6),
        ("Conv1D", (8, 24), 24),
        ("BatchNorm2d", (8,), None),
        ("ReLU", (), None),
    ],
)
def test_a_layer_s_width_is_read_off_its_weight(kind, shape, width):
    assert output_width(LayerProfile(layer="one", kind=kind, weight_shape=shape)) == width


def test_a_cut_that_cannot_be_is_told_in_place_and_taken_back(bench):
    ask(bench, do="prune", layer="head", ratio=0.5, kept=2)
    state = bench.wait(PATIENCE)
    assert "layer 'head' (Linear) cannot lose a channel" in state.error and len(bench.recipe) == 0


def test_dropping_a_step_keeps_the_limit(bench):
    bench.recipe = lab.Recipe(["fold", "layout"], workload="small", limit={"output_error": 0.5})
    ask(bench, do="drop", index=1)
    assert [step.kind for step in bench.recipe] == [
        "fold"
    ] and bench.recipe.limit.output_error == 0.5


def test_a_choice_and_that_it_was_served_reach_the_page_as_one_message(monkeypatch):
    panel, messages = lab.show(FOUND), []
    monkeypatch.setattr(
        panel, "_send", lambda message, buffers=None: messages.append(set(message["state"]))
    )
    ask(panel, do="keep", layer="conv", threshold=1.0, kept=4)
    (answer,) = [message for message in messages if "served" in message]
    assert "kept" in answer
