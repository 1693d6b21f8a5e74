"""The view of channel importance: the data that the page is sent, the panel, the figure, the
workbench and its worker.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab import saliency
from paifuser_lab.records import LayerImportance, LayerProfile, Limit
from paifuser_lab.views import canvas
from paifuser_lab.views import importance as drawing
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.importance import with_pruning
from paifuser_lab.widgets.tabs.layers import output_width
from tests.support.bench import TIMEOUT_S, ask
from tests.support.drawn import changed

pytestmark = pytest.mark.usefixtures("as_it_was")


def importance_of(*rows, **more):
    return changed("Importance", **{"workload": "small", "method": "magnitude"} | more, rows=rows)


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
IMPORTANCE = importance_of(CONV, HEAD)
WIDE = Limit(output_error=10.0)  # nothing that is cut is refused


def test_an_importance_is_packed_as_the_pictures_of_its_layers_and_a_threshold_over_all():
    odd = LayerImportance(layer="odd", kind="Linear", channels=3, note="why")
    data = packed(importance_of(HEAD, CONV, odd))
    assert data["layer"] == ["head", "conv", "odd"]
    sent = data["picture"]
    assert (sent["title"], sent["sentence"]) == (
        "small: how much each channel matters", "A sentence.",
    )  # fmt: skip
    assert sent["note"] == "by magnitude · 8 examples · a machine"
    by_layer = dict(sent["by_layer"])
    assert list(by_layer) == ["conv", "head", "odd"], "the first is one that can lose channels"
    assert by_layer["odd"]["rows"] == [] and by_layer["odd"]["note"] == "why"
    assert by_layer["conv"]["label"] == "threshold of conv"
    fixed = by_layer["head"]["rows"][0][0]["handle"]
    assert sent["columns"][fixed["at"]["column"]] == bytes(4), "a line that stays at 0"


def test_a_layer_s_stops_keep_one_channel_more_each_and_stand_between_channels():
    generator = numpy.random.default_rng(0)
    row = layer("conv", generator.lognormal(size=500).tolist(), errors=(0.1,) * 500)
    (panel,) = drawing.channels(row, 40).panels
    handle, (bars, mean, band) = panel.handle, panel.marks
    kept, thresholds = handle.figures
    assert kept.text(39) == "40" and kept.name == "of 500 channels kept"
    assert [row.kept(threshold) for threshold in thresholds.values] == list(range(1, 501))
    assert handle.at == pytest.approx(numpy.sqrt(thresholds.values)) and handle.at[-1] == 0
    assert handle.start == 39 and drawing.channels(row).panels[0].handle.start == 499
    assert len(bars.x) == drawing.MAX_BARS and bars.x2[-1] == 500
    gone = [x >= 40 for x in bars.x]
    assert bars.tone == [handle.tones[is_gone] for is_gone in gone], "two tones, the cut between"
    assert handle.boxes[39] == gone.index(True) and handle.boxes[-1] == len(bars.x)
    assert mean.at == [1.0] and len(band.x) == len(band.low) == len(bars.x) + 1
    assert all(
        low <= top <= high
        for low, top, high in zip(band.low[:-1], bars.y2, band.high[:-1], strict=True)
    )


def test_equal_channels_go_one_by_one_and_channels_of_no_importance_are_drawn():
    (panel,) = drawing.channels(layer("conv", (1.0, 2.0, 2.0, 2.0))).panels
    assert panel.handle.figures[0].values == [1, 2, 3, 4]
    (panel,) = drawing.channels(layer("conv", (0.0, 0.0))).panels
    assert panel.handle.at[0] == 1 and panel.y.names[-1] == "1×"


def test_ticks_are_round_and_apart_and_the_mean_is_one_of_them():
    for high in (1.0, 2.0, 9.0, 300.0):
        panel = drawing.channels(layer("conv", (high, 1.0, 1.0))).panels[0]
        assert "1×" in panel.y.names
        gaps = numpy.diff([panel.y.share(tick) for tick in panel.y.ticks])
        assert (gaps >= drawing.APART).all()


def test_a_threshold_over_all_layers_says_how_many_channels_python_would_keep():
    generator = numpy.random.default_rng(0)
    rows = [layer(f"conv{size}", generator.lognormal(size=size).tolist()) for size in (1, 64, 300)]
    found = importance_of(*rows, HEAD, LayerImportance(layer="odd", kind="Linear", channels=3))
    handle = drawing.over_all(found)
    kept, thresholds = handle.figures
    assert kept.values == [sum(found.kept(at).values()) for at in thresholds.values]
    assert kept.values[0] == found.channels and kept.values[-1] == 1 + 2 + 5 + 3
    assert all(more > fewer for more, fewer in pairwise(kept.values))
    assert drawing.over_all(importance_of(HEAD)).at == [0.0], "nothing can go"


def test_a_layer_s_threshold_sets_its_kept_channels_and_the_recipe():
    panel = lab.show(IMPORTANCE)
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


def test_one_threshold_applies_to_all_layers_even_to_one_set_by_itself():
    panel = lab.show(IMPORTANCE)
    panel.threshold = 0.8
    assert panel.kept == {"conv": 5, "head": 5}
    ask(panel, do="keep", layer="conv", threshold=1.5, kept=2)
    ask(panel, do="keep", layer="", threshold=0.8, kept=10)
    assert panel.kept == {"conv": 5, "head": 5} and panel.threshold == 0.8
    ask(panel, do="keep", layer="", threshold=99.0, kept=6)
    assert panel.kept == {"conv": 1, "head": 5}, "one channel stays, and all of the output layer"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda panel: ask(panel, do="keep", layer="nobody", threshold=1.0, kept=1),
            "'nobody' is not a layer of this importance",
        ),
        (
            lambda panel: setattr(panel, "kept", {"conv": 0}),
            "'conv' cannot keep 0 channels; it has 8",
        ),
        (lambda panel: setattr(panel, "kept", {"conv": 9}), "'conv' cannot keep 9 channels"),
        (
            lambda panel: setattr(panel, "kept", {"head": 4}),
            "'head' cannot keep 4 channels; its channels are the model's answer",
        ),
        (lambda panel: setattr(panel, "threshold", -1.0), "-1.0 is not a threshold"),
        (lambda panel: setattr(panel, "threshold", math.nan), "nan is not a threshold"),
    ],
)
def test_an_invalid_choice_raises_and_changes_nothing(change, sentence):
    panel = lab.show(IMPORTANCE)
    panel.threshold = 0.8
    with pytest.raises(lab.PaifuserError, match=sentence):
        change(panel)
    assert panel.kept == {"conv": 5, "head": 5} and panel.threshold == 0.8


def test_the_figure_has_the_layers_their_bars_and_the_counts_far_below_the_mean():
    odd = LayerImportance(layer="odd", kind="Linear", channels=3, note="why")
    figure = lab.figure(importance_of(CONV, HEAD, odd))
    words = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"8/8", "5/5", "3/3"} <= words and figure.axes[0].get_title("left") == "A sentence."
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["conv", "head", "odd"]
    about = "\n".join(figure.hover.values())
    assert "2 below half the mean" in about and HEAD.note in about and "why" in about
    assert figure.axes[1].get_xlabel() == "conv: 8 channels, the most important first"
    assert len(figure.axes[1].patches) == 8 and len(figure.axes[1].collections) == 1


def test_the_figure_of_a_cut_has_its_line_and_two_tones():
    figure = canvas.draw(drawing.picture(IMPORTANCE, {"conv": 3}))
    line = figure.axes[1].lines[-1]
    assert line.get_ydata()[0] == pytest.approx(math.sqrt(5.5 / 4.5))
    assert len({bar.get_facecolor() for bar in figure.axes[1].patches}) == 2
    assert "3/8" in {text.get_text() for text in figure.axes[0].texts}


def test_the_figure_of_many_layers_shows_the_first_and_counts_the_rest():
    many = importance_of(
        *(layer(f"block.{index}", [1.0] * 5000) for index in range(drawing.MAX_LAYERS + 3))
    )
    axes = lab.figure(many).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[-1] == "block.39" and axes.get_xlabel() == "3 more left out"


def test_what_is_kept_is_told_at_once_and_while_a_threshold_is_dragged():
    panel = lab.show(IMPORTANCE)
    assert panel.cut["summary"] == "13 of 13 channels kept · 100.0%" and panel.cut["stop"] == 0
    panel.live = {"layer": "conv", "threshold": 1.0, "kept": 4}
    assert panel.cut["kept"] == {"conv": 4, "head": 5} and panel.kept["conv"] == 8
    assert panel.cut["summary"] == "9 of 13 channels kept · 69.2%" and panel.cut["stop"] == 4
    assert panel.cut["shares"]["rows"][0][0]["marks"][2]["texts"] == ["4/8", "5/5"]
    panel.live = {"layer": "", "threshold": 99.0, "kept": 6}
    assert panel.cut["kept"] == {"conv": 1, "head": 5}
    panel.live = {}
    assert panel.cut["kept"] == {"conv": 8, "head": 5}, "given up"
    panel.threshold = 0.8
    assert panel.cut["kept"] == panel.kept == {"conv": 5, "head": 5}


# The workbench.


def test_the_workbench_shows_a_set_importance(bench):
    assert bench.importance is None and "importance" not in bench.views
    bench.importance = IMPORTANCE
    assert bench.importance is IMPORTANCE and bench.views["importance"]["layer"] == ["conv", "head"]


def test_a_click_runs_the_query_in_the_background(bench):
    seen = []
    end = bench.session.observe(lambda state: seen.append((state.status, state.total)))
    ask(bench, do="importance")
    state = bench.wait(TIMEOUT_S)
    end()
    assert ("weighing", 20) in seen and state.error is None
    assert state.importance.method == "magnitude" and "has no loss" in state.importance.notes[0]
    assert bench.views["importance"]["layer"] == ["conv", "head"]
    assert bench.importance["conv"].values == pytest.approx(
        bench.session.work.model.conv.weight.detach().flatten(1).norm(dim=1).tolist()
    )


def test_stop_ends_the_query_and_keeps_its_results(bench, monkeypatch):
    def estimate(work, *, seconds, should_stop):
        bench.session.stop()
        while not should_stop():
            time.sleep(0.01)
        return IMPORTANCE.model_copy(update={"is_interrupted": True})

    monkeypatch.setattr(saliency, "importance", estimate)
    bench.session.query("importance", seconds=1e6)
    assert bench.wait(TIMEOUT_S).importance.is_interrupted


def test_the_end_of_a_drag_chooses_a_step_and_keeping_all_removes_it(bench):
    bench.importance = IMPORTANCE
    bench.recipe = lab.Recipe([], limit=WIDE)
    ask(bench, do="prune", layer="conv", ratio=0.5, kept=4)
    assert bench.recipe == lab.Recipe(
        [{"prune": {"layers": {"conv": 0.5}, "importance": "magnitude"}}]
    )
    assert bench.state["pruned"] == {"conv": 0.5}
    ask(bench, do="prune", layer="conv", ratio=0.25, kept=6)
    assert len(bench.recipe) == 1 and bench.state["pruned"] == {"conv": 0.25}, (
        "the newer choice replaces the older one"
    )
    state = bench.wait(TIMEOUT_S)
    assert state.error is None and state.variant.module.conv.out_channels == 6, (
        "exactly the kept channels, not rounded for the hardware"
    )
    bench.session.undo()
    assert bench.state["pruned"] == {"conv": 0.5}
    ask(bench, do="prune", layer="conv", threshold=0.0, kept=8)
    assert len(bench.recipe) == 0


def test_what_is_dragged_is_predicted_as_it_would_be_cut(bench):
    assert bench.cut == {}
    bench.importance = IMPORTANCE
    bench.recipe = lab.Recipe([], limit=WIDE)
    state = bench.wait(TIMEOUT_S)
    assert [row["predicted"] for row in bench.cut["rows"]][:2] == ["0%", "0%"]
    bench.live = {"layer": "conv", "threshold": 1.0, "kept": 4}
    cut, widths = bench.cut, state.cut_cost.widths({"conv": 0.5})
    whole, predicted = state.cut_cost.predict(state.cut_cost.full), state.cut_cost.predict(widths)
    text = f"−{100 * (1 - predicted.parameters / whole.parameters):.1f}%"
    assert cut["rows"][0]["predicted"] == text and cut["line"].startswith(f"parameters {text} · ")
    share = predicted.latency_ms / whole.latency_ms
    assert share < 1 and cut["rows"][2]["predicted"].endswith(f"(−{100 * (1 - share):.1f}%)")
    assert cut["kept"]["conv"] == 4 and cut["widths"] == list(widths)
    assert cut["waiting"] and len(bench.recipe) == 0
    bench.live = {}
    ask(bench, do="prune", layer="conv", threshold=1.0, kept=4)
    assert bench.recipe[0].options["layers"] == {"conv": 0.5}
    assert bench.cut["kept"]["conv"] == 4 and not bench.cut["rows"][0]["achieved"]
    assert bench.wait(TIMEOUT_S).error is None
    parameters, flops, latency = bench.cut["rows"][:3]
    assert parameters["achieved"] == text and parameters["error"] == "0%" == flops["error"]
    assert latency["achieved"].endswith("%)") and " ms (" in latency["predicted"]
    bench.live = {"layer": "conv", "threshold": 1.0, "kept": 2}
    assert not bench.cut["rows"][0]["achieved"], "what was measured is another cut"
    bench.live = {}


@pytest.mark.parametrize("method", ["fisher", "magnitude", "taylor", "batch-norm"])
def test_the_workbench_notes_whether_the_step_uses_the_shown_scores(bench, method):
    assert bench.state["cut_by"] == ""
    bench.importance = importance_of(CONV, HEAD, method=method)
    shown = bench.state["cut_by"]
    assert shown.startswith(f"The step prune with importance: {method} removes the channels")
    with bench.session.paused():
        bench.recipe = lab.Recipe(
            [{"prune": {"ratio": 0.5, "importance": "random"}}], workload="small"
        )
        assert bench.state["cut_by"].startswith(
            f"Shown: {method}. The step prune in the recipe cuts by random: "
        ), "the recipe's importance is used"
        bench.recipe = lab.Recipe([{"prune": {"ratio": 0.5}}], workload="small")
        assert ("cuts by magnitude: " in bench.state["cut_by"]) == (method != "magnitude"), (
            "the workload has no loss"
        )


def test_a_panel_alone_notes_which_scores_the_step_uses():
    assert "importance: magnitude removes" in lab.show(IMPORTANCE).data["cut_by"]
    alone = lab.show(importance_of(CONV, method="fisher")).data["cut_by"]
    assert alone.startswith("The step prune with importance: fisher removes the channels with the ")
    assert (
        lab.show(importance_of(CONV, method="fisher", cut_by="A sentence of the record.")).data[
            "cut_by"
        ]
        == "A sentence of the record."
    )


def test_one_threshold_prunes_all_layers_except_the_output_layer(bench):
    ask(bench, do="prune", layer="", threshold=0.8, kept=10)
    assert "find the importance first" in bench.state["error"] and len(bench.recipe) == 0
    bench.importance = IMPORTANCE
    bench.recipe = lab.Recipe([], limit=WIDE)
    ask(bench, do="prune", layer="", threshold=0.8, kept=10)
    assert bench.state["pruned"] == {"conv": 0.375}
    ask(bench, do="prune", layer="", threshold=0.0, kept=13)
    assert bench.state["pruned"] == {}


def test_a_ratio_for_all_layers_stays_when_one_layer_is_withdrawn():
    general = with_pruning(
        lab.Recipe([{"prune": {"ratio": 0.5, "layers": {"a": 0.1}}}]), {"a": 0}, "magnitude"
    )
    assert general[0].options == {"ratio": 0.5}
    seen = with_pruning(lab.Recipe(["fold"]), {"a": 0.5}, "fisher")
    assert seen[1].options == {"layers": {"a": 0.5}, "importance": "fisher"}, (
        "the step uses the shown scores"
    )


def test_the_state_has_the_channels_of_each_layer_now_and_before(bench):
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
def test_a_layer_s_width_comes_from_the_shape_of_its_weight(kind, shape, width):
    assert output_width(LayerProfile(layer="layer", kind=kind, weight_shape=shape)) == width


def test_an_impossible_cut_is_reported_and_withdrawn(bench):
    ask(bench, do="prune", layer="head", ratio=0.5, kept=2)
    state = bench.wait(TIMEOUT_S)
    assert "layer 'head' (Linear) cannot lose a channel" in state.error and len(bench.recipe) == 0


def test_dropping_a_step_keeps_the_limit(bench):
    bench.recipe = lab.Recipe(["fold", "layout"], workload="small", limit={"output_error": 0.5})
    ask(bench, do="drop", index=1)
    assert [step.kind for step in bench.recipe] == [
        "fold"
    ] and bench.recipe.limit.output_error == 0.5
