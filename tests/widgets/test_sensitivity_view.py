"""The view of sensitivity: the data that the page is sent, the panel, the figure, the workbench and
its worker.
"""

from __future__ import annotations

import math
import re
import threading
import time

import numpy
import pytest
from matplotlib.text import Text
from torch import nn

import paifuser_lab as lab
from paifuser_lab import saliency
from paifuser_lab._files import asset
from paifuser_lab.model.formats import AUTOCAST, FLOATS, NAMES
from paifuser_lab.records import ENGINE_ROW, Estimate, LayerSensitivity, Method
from paifuser_lab.session.state import State
from paifuser_lab.views import heat_scale
from paifuser_lab.views import sensitivity as drawing
from paifuser_lab.views.sensitivity import agreement
from paifuser_lab.views.style import DARK, LIGHT
from paifuser_lab.widgets.presenter import Presenter
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.layers import CHOICES
from tests.support.bench import TIMEOUT_S, ask
from tests.support.colours import contrast, luminance
from tests.support.drawn import changed
from tests.support.models import images

pytestmark = pytest.mark.usefixtures("as_it_was")


def layer(name, scores, **more):
    """A row; of each format's scores the first is predicted, the second, if any, measured."""
    known = {
        format_name: dict(zip(("quadratic", "ablation"), map(estimate, pair), strict=False))
        for format_name, pair in scores.items()
    }
    return LayerSensitivity(layer=name, kind="Conv2d", parameters=10, scores=known, **more)


def estimate(value):
    return Estimate(value=value, error=abs(value) / 10)


def sensitivity_of(*rows, **more):
    method = Method(
        name="quadratic", seconds=1, samples=8, agreement={"bf16": 0.9, "int2-weights": math.nan}
    )
    known = {"formats": ("bf16", "int2-weights"), "methods": (method,), "examples": 8}
    return changed("Sensitivity", workload="small", **known | more, rows=rows)


SENSITIVITY = sensitivity_of(
    layer("conv", {"bf16": (-1e-5, 2e-6), "int2-weights": (0.3, 0.2)}),
    layer("head", {"bf16": (2e-5,)}, note="int2 was not tried"),
)


@pytest.fixture
def engine(monkeypatch):
    """Replaces `saliency.sensitivity` by a function."""

    def put(function):
        monkeypatch.setattr(saliency, "sensitivity", function)

    return put


def floats(data):
    return numpy.frombuffer(data, "<f4").tolist()


def test_a_sensitivity_is_packed_as_columns_and_buffers():
    data = packed(SENSITIVITY)
    assert (
        data["layer"] == ["conv", "head"]
        and data["title"] == "small: what each layer loses in lower precision"
    )
    assert floats(data["predicted"]["bf16"]["value"]) == pytest.approx([-1e-5, 2e-5])
    assert floats(data["predicted"]["int2-weights"]["error"]) == pytest.approx(
        [0.03, math.nan], nan_ok=True
    )
    assert floats(data["measured"]["int2-weights"]["value"]) == pytest.approx(
        [0.2, math.nan], nan_ok=True
    )
    assert floats(data["parameters"]) == [10, 10]
    assert [
        data["note"]["names"][code] for code in numpy.frombuffer(data["note"]["codes"], "<u2")
    ] == ["", "int2 was not tried"]
    assert data["choices"] == ["bf16"], "fewer bits can be estimated, not run"


def test_what_was_predicted_and_measured_is_a_dot_by_layer_in_its_format_s_shape():
    shown = agreement(SENSITIVITY)
    (panel,) = shown.panels
    dots = panel.marks[-1]
    assert list(dots.key) == ["conv", "conv"] and (dots.x[1], dots.y[1]) == (0.3, 0.2)
    assert (dots.shape[1], dots.tone[1]) == ("square", "group-1"), "the second format's"
    assert dots.shape[0] == "ring", "−1e-5 is not above 0"
    assert "bf16 0.90" in [key.name for key in shown.legend]
    assert "int2-weights –" in [key.name for key in shown.legend], "nothing to rank"
    assert (panel.x.low, panel.x.high) == (panel.y.low, panel.y.high), "equality is the diagonal"
    unmeasured = agreement(SENSITIVITY.model_copy(update={"method": "ablation"}))
    assert unmeasured.panels == () and "measured by itself" in unmeasured.sentence


def test_a_score_that_is_not_above_0_is_a_ring_at_the_edge():
    shown = agreement(
        sensitivity_of(
            layer("conv", {"int8": (0.3, -0.2)}), layer("head", {"int8": (0.1, 0.1)}),
            formats=("int8",),
        )
    )  # fmt: skip
    (panel,), dots = shown.panels, shown.panels[0].marks[-1]
    assert list(dots.shape) == ["ring", "disc"] and dots.y[0] == panel.y.low
    assert "Rings at the edge: 1 of 2" in shown.note


def test_a_prediction_that_was_not_measured_says_how_to_measure_it():
    shown = agreement(sensitivity_of(layer("conv", {"bf16": (1e-3,)})))
    assert shown.panels == () and '"ablation"))' in shown.sentence


def test_the_panel_collects_clicked_formats_as_a_recipe():
    panel = lab.show(SENSITIVITY)
    assert panel.view == "sensitivity" and len(panel.recipe) == 0
    ask(panel, do="precision", layer="conv", name="bf16")
    ask(panel, do="precision", layer="head", name="fp16")
    ask(panel, do="precision", layer="conv", name="")
    assert panel.chosen == {"head": "fp16"} and panel.served == 3
    assert (
        panel.recipe == lab.Recipe([{"precision": {"layers": {"head": "fp16"}}}])
        and panel.recipe.workload == "small"
    )
    panel.chosen = {"conv": "bf16"}
    assert panel.recipe[0].options["layers"] == {"conv": "bf16"}


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            {"do": "precision", "layer": "nobody", "name": "bf16"},
            "'nobody' is not a layer of this sensitivity",
        ),
        (
            {"do": "precision", "layer": "conv", "name": "int2-weights"},
            "'conv' cannot run in 'int2-weights'",
        ),
    ],
)
def test_an_invalid_choice_raises_and_changes_nothing(request_, sentence):
    panel = lab.show(SENSITIVITY)
    panel.chosen = {"head": "bf16"}
    with pytest.raises(lab.PaifuserError, match=sentence):
        ask(panel, **request_)
    assert panel.chosen == {"head": "bf16"} and panel.served == 1


# The same cases as in widgets/sensitivity.test.js: figure and widget share one scale.
@pytest.mark.parametrize(
    ("values", "floor", "top"),
    [
        ([3e-5, 0.02], 2e-5, 0.02),
        ([0.3], 0.05, 0.5),
        ([1e-12, 4], 5e-6, 5),
        ([-1, 0, 7, math.inf, math.nan], 1, 10),
        ([1e-4], 1e-5, 1e-4),
    ],
)
def test_the_scale_has_round_ends_that_include_every_positive_number(values, floor, top):
    assert heat_scale.scale_of(values) == (floor, top)


def test_steps_and_numbers_equal_those_of_the_widget():
    scale = heat_scale.Scale(1e-9, 1)
    assert [scale.step(value) for value in (1e-9, 1e-8, 1e-7, 0.5, 1, 9, math.inf)] == [
        0,
        1,
        2,
        8,
        8,
        8,
        8,
    ]
    assert [scale.step(value) for value in (0, -1, 1e-10, math.nan)] == [-1] * 4
    assert heat_scale.scale_of([0, -1, math.nan, math.inf]) is None
    cases = {
        0.0123: "0.012",
        0.000012: "1.2e-5",
        1e-4: "1e-4",
        0.0: "0",
        -2e-5: "−2e-5",
        123.4: "120",
        12345.0: "1.2e4",
    }
    assert {value: heat_scale.cell_text(value) for value in cases} == cases
    assert heat_scale.cell_text(math.inf) == "∞"


@pytest.mark.parametrize(
    ("theme", "ramp"), [(LIGHT, heat_scale.RAMP), (DARK, heat_scale.DARK_RAMP)]
)
def test_widget_and_figure_share_one_ramp_with_readable_numbers(theme, ramp):
    light, dark = (
        asset("widgets/shared/theme.css")
        .read_text(encoding="utf-8")
        .split('[data-jp-theme-light="false"]')[:2]
    )
    colours = dict(re.findall(r"(--pf-heat-\w+): (#\w{6})", light if theme is LIGHT else dark))
    assert tuple(colours[f"--pf-heat-{step}"] for step in range(9)) == ramp
    rules = dict(
        re.findall(
            r"\.pf-heat-(\d) \{[^}]*color: var\((--pf-heat-\w+)\)",
            asset("widgets/shared/heat.css").read_text(),
        )
    )
    assert all(
        contrast(colours[rules[str(step)]], colour) >= 4.5 for step, colour in enumerate(ramp)
    )
    lights = [luminance(colour) for colour in ramp]
    assert lights == sorted(lights, reverse=theme is LIGHT), (
        "each step has more contrast to the background"
    )


def words_of(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def about(figure):
    """The list above the panels."""
    return figure.axes[0].get_title(loc="left").split("\n")


def test_the_figure_has_the_numbers_the_scale_and_the_agreement():
    figure = lab.figure(SENSITIVITY)
    assert len(figure.axes) == 3
    words = words_of(figure)
    assert {"conv", "head", "bf16", "int2-weights", "−1e-5", "0.3", "–", "bf16 0.90"} <= {*words}
    assert "rise of the loss, predicted by quadratic" in words
    assert about(figure) == ["without a colour: below 2e-5"]
    shades = drawing.picture(SENSITIVITY).panels[1].marks[0].shades
    assert list(shades) == [0, 1, 9, 0], "column by column: below 0, the least, the most, unknown"


@pytest.mark.parametrize("dark", [False, True])
def test_every_number_can_be_read_on_its_colour(dark):
    theme, ramp = (DARK, heat_scale.DARK_RAMP) if dark else (LIGHT, heat_scale.RAMP)
    for step, colour in enumerate(ramp):
        assert contrast(heat_scale.ink_on(step, theme), colour) >= 4.5
    many = sensitivity_of(*(layer(str(k), {"bf16": (10.0**-k,)}) for k in range(6)))
    texts = lab.figure(many, dark=dark).axes[1].texts
    tones = drawing.picture(many).panels[1].marks[1].tone
    inks = [heat_scale.ink_on(int(tone.removeprefix("on-heat-")), theme) for tone in tones]
    assert [text.get_color() for text in texts] == inks
    assert {"#fefefe", "#111111"} <= set(inks)


def test_what_cannot_be_told_from_0_has_no_colour():
    def row(name, value, error):
        return LayerSensitivity(
            layer=name,
            kind="Conv2d",
            parameters=1,
            scores={"bf16": {"quadratic": Estimate(value=value, error=error)}},
        )

    untold = (row("a", 2e-3, 3e-3), row("b", -1e-3, 2e-3), row("c", 0.0, 0.0))
    told = (row("d", 2e-3, 1e-3), row("e", 4e-3, None))
    figure = lab.figure(sensitivity_of(*untold, *told))
    words = words_of(figure)
    assert words.count("≈ 0") == len(untold) and {"2e-3", "4e-3"} <= set(words)
    assert "without a colour: ≈ 0 or below 5e-4" in about(figure)
    shades = drawing.picture(sensitivity_of(*untold, *told)).panels[1].marks[0].shades
    assert [shade == 0 for shade in shades] == [True, True, True, False, False] * 1 + [True] * 5
    assert about(lab.figure(sensitivity_of(*told))) == ["without a colour: below 5e-4"]


def test_the_figure_without_measurements_has_only_the_heat_map():
    plain = sensitivity_of(layer("conv", {"bf16": (1e-3,)}), is_interrupted=True)
    assert len(lab.figure(plain).axes) == 2
    assert "stopped early: what was found until then" in about(lab.figure(plain))
    measured = sensitivity_of(
        layer("conv", {"bf16": (1e-3, 2e-3)}), method="ablation", unit="output error"
    )
    assert "relative error of the output, measured" in words_of(lab.figure(measured))
    nothing = sensitivity_of(layer("conv", {"bf16": (-1.0,)}))
    assert about(lab.figure(nothing)) == ["without a colour: not above 0"]


def test_the_figure_of_many_layers_shows_the_most_sensitive_in_model_order():
    many = sensitivity_of(
        *(layer(f"block.{index}", {"bf16": (1e-3 * (index % 7 + 1),)}) for index in range(100))
    )
    rows = drawing.shown(many)
    assert [row.layer for row in rows] == sorted(
        (row.layer for row in rows), key=lambda name: int(name.split(".")[1])
    )
    assert (
        len(rows) == drawing.MAX_LAYERS
        and "block.6" in {row.layer for row in rows}
        and "block.0" not in {row.layer for row in rows}
    )
    assert "left out: 60 layers that matter less" in about(lab.figure(many))


def test_the_workbench_shows_a_set_sensitivity_until_it_is_taken_back(bench):
    assert bench.sensitivity is None and "sensitivity" not in bench.views
    bench.sensitivity = SENSITIVITY
    assert bench.sensitivity is SENSITIVITY and bench.views["sensitivity"]["layer"] == [
        "conv",
        "head",
    ]
    ask(bench, do="precision", layer="head", name="bf16")
    assert bench.wait(TIMEOUT_S).sensitivity is SENSITIVITY, "a choice does not remove it"
    bench.sensitivity = None
    assert "sensitivity" not in bench.views


def test_a_click_runs_the_query_in_the_background(bench, engine):
    seen, calls = [], []

    def estimate(work, *, seconds, should_stop):
        calls.append((work is not bench.session.work, seconds))
        return SENSITIVITY

    engine(estimate)
    end = bench.session.observe(lambda state: seen.append((state.status, state.total)))
    ask(bench, do="sensitivity")
    state = bench.wait(TIMEOUT_S)
    end()
    assert state.sensitivity is SENSITIVITY and calls == [(True, 20.0)] and ("sensing", 20) in seen
    assert bench.views["sensitivity"]["layer"] == ["conv", "head"] and bench.state["error"] is None


def endless(started):
    """Runs until it is stopped and returns its results so far, as the real function does."""

    def estimate(work, *, seconds, should_stop):
        started.set()
        while not should_stop():
            time.sleep(0.01)
        return SENSITIVITY.model_copy(update={"is_interrupted": True})

    return estimate


def test_stop_ends_the_query_and_keeps_its_results(bench, engine):
    started = threading.Event()
    engine(endless(started))
    bench.session.query("sensitivity", seconds=1e6)
    assert started.wait(TIMEOUT_S)
    assert (
        bench.state["status"] == "sensing"
        and bench.state["doing"] == "how much each layer matters, in seconds"
    )
    ask(bench, do="stop")
    state = bench.wait(TIMEOUT_S)
    assert (
        state.sensitivity.is_interrupted
        and state.status == "idle"
        and bench.views["sensitivity"]["is_interrupted"]
    )


def test_a_newer_choice_interrupts_the_query_and_keeps_its_results(bench, engine):
    started = threading.Event()
    engine(endless(started))
    bench.session.query("sensitivity", seconds=1e6)
    assert started.wait(TIMEOUT_S)
    ask(bench, do="choose", step={"fold": {}})
    state = bench.wait(TIMEOUT_S)
    assert (
        state.variant.recipe == lab.Recipe(["fold"])
        and state.sensitivity.is_interrupted
        and state.comparison is not None
    )


def test_a_failed_query_is_reported_and_keeps_the_earlier_record(bench, engine):
    def fail(work, *, seconds, should_stop):
        raise lab.PaifuserError("The loss is not known; give the workload a loss.")

    engine(fail)
    bench.sensitivity = SENSITIVITY
    ask(bench, do="sensitivity")
    state = bench.wait(TIMEOUT_S)
    assert (
        state.error == "The loss is not known; give the workload a loss."
        and state.sensitivity is SENSITIVITY
    )
    with pytest.raises(lab.PaifuserError, match="positive number of seconds, not 0"):
        bench.session.query("sensitivity", seconds=0)


def test_the_elapsed_seconds_of_a_query_are_counted(bench, engine):
    done = threading.Event()
    engine(lambda work, **options: SENSITIVITY if done.wait(TIMEOUT_S) else None)
    end = bench.session.observe(
        lambda state: done.set() if state.status == "sensing" and state.done else None
    )
    bench.session.query("sensitivity", seconds=5)
    assert bench.wait(TIMEOUT_S).sensitivity is SENSITIVITY and done.is_set()
    end()
    assert (bench.session.state.done, bench.session.state.total) == (0, 0)


def test_every_format_is_a_choice_and_reasons_are_per_layer_or_per_format(
    bench,
):
    assert bench.state["choices"] == list(CHOICES) == ["", *NAMES, *AUTOCAST]
    assert set(bench.state["cannot"]) == {"relu", ENGINE_ROW} and set(bench.state["cannot_in"]) == {
        "norm",
        "conv",
    }
    reasons = bench.state["cannot_in"]["norm"]
    assert set(reasons) == {*NAMES, *AUTOCAST} - set(FLOATS) and "BatchNorm2d" in reasons["int8"]
    assert (
        reasons["amp-bf16"]
        == "autocast is for what multiplies matrices, and leaves a BatchNorm2d in fp32"
    )
    assert set(bench.state["cannot_in"]["conv"]) == {"fp8"}


def test_layers_without_weights_have_no_choice():
    shown = Presenter(lab.Workload(nn.Sequential(nn.ReLU()), images(), name="bare"))
    state = shown.state(State(recipe=lab.Recipe([])))
    assert set(state["cannot"]) == {"0", ENGINE_ROW} and state["cannot_in"] == {}


def test_a_choice_and_served_are_sent_as_one_message(monkeypatch):
    panel, messages = lab.show(SENSITIVITY), []
    monkeypatch.setattr(
        panel, "_send", lambda message, buffers=None: messages.append(set(message["state"]))
    )
    ask(panel, do="precision", layer="conv", name="bf16")
    (reply,) = [message for message in messages if "served" in message]
    assert "chosen" in reply
