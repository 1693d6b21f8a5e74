"""The Python side of the widgets: the data that is sent, the requests, and static figures for
places without widgets.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import replace

import numpy
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import paifuser_lab as lab
from paifuser_lab import profiler
from paifuser_lab.jobs import worker
from paifuser_lab.records import Origin
from paifuser_lab.records.quality import Quality
from paifuser_lab.session.state import State
from paifuser_lab.widgets.details import layer_details
from paifuser_lab.widgets.presenter import figures, quality
from paifuser_lab.widgets.recipe_edits import without
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.layers import NUMBERS, formats_in, times_before, with_precision
from tests.support.bench import TIMEOUT_S
from tests.support.models import Small, images

HTML_NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def profile():
    return lab.profile(lab.Workload(Small(), images(), name="small"), runs=2, threads=1)


@pytest.fixture
def make_bench(tmp_path, monkeypatch):
    """A factory of workbenches that have profiled and measured their model."""
    monkeypatch.chdir(tmp_path)
    benches = []

    def make(model=None, **options):
        benches.append(
            lab.Workbench(
                lab.Workload(model or Small(), images(), name="small", **options),
                rounds=1,
                seconds=0.1,
            )
        )
        benches[-1].wait(TIMEOUT_S)
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def send(bench, *requests):
    """Send requests as the page does: those not yet served stay in the trait."""
    first = bench.served + 1
    bench.requests = [{**request, "id": first + index} for index, request in enumerate(requests)]


def test_a_profile_is_packed_as_columns_and_buffers(profile):
    data = packed(profile)
    assert data["layer"] == ["", "conv", "norm", "relu", "head"]
    assert numpy.frombuffer(data["parent"], "<i4").tolist() == [-1, 0, 0, 0, 0]
    kinds = numpy.frombuffer(data["kind"]["codes"], "<u2")
    assert [data["kind"]["names"][code] for code in kinds] == [row.kind for row in profile]
    for name in NUMBERS:
        sent = numpy.frombuffer(data["numbers"][name], "<f4")
        expected = [getattr(row, name) for row in profile]
        assert sent == pytest.approx(
            [numpy.nan if value is None else value for value in expected], rel=1e-6, nan_ok=True
        )


def test_a_changed_model_is_sent_with_its_layers_times_before(profile):
    rows = [
        row.model_copy(update={"self_ms": 2 * row.self_ms, "total_ms": 3 * row.total_ms})
        for row in profile.layers
        if row.layer != "relu"
    ]
    dumped = [row.model_dump() for row in rows]
    slower = type(profile).model_validate(profile.model_dump() | {"layers": dumped})
    assert times_before(profile, None) == times_before(profile, profile) == {}
    before = times_before(profile, slower)["before"]
    for name, factor in (("self_ms", 2), ("total_ms", 3)):
        sent = numpy.frombuffer(before[name], "<f4")
        expected = [
            numpy.nan if row.layer == "relu" else factor * getattr(row, name) for row in profile
        ]
        assert sent == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_a_profile_of_a_busy_machine_is_sent_as_uncertain(profile):
    busy = profile.model_copy(update={"quality": Quality(others_share=0.5)})
    quiet = profile.model_copy(update={"quality": Quality(others_share=0.01)})
    known = [packed(one)["is_uncertain"] for one in (busy, quiet)]
    assert known == [True, False]
    known = [times_before(quiet, one)["is_uncertain"] for one in (busy, quiet.model_copy())]
    assert known == [True, False], "a change is as uncertain as the time before it"


def test_the_strip_says_so_where_only_the_layers_were_timed_on_a_busy_machine(make_bench):
    state = make_bench().session.state
    quiet = state.comparison.model_copy(update={"quality": Quality(others_share=0.01)})

    def shown(others):
        layers = state.profile.model_copy(update={"quality": Quality(others_share=others)})
        return quality(replace(state, comparison=quiet, profile=layers))

    assert shown(0.01)["label"] == "Quiet: numbers hold"
    rough = shown(0.5)
    assert (rough["state"], rough["label"]) == ("quiet", "Quiet, layers are rough")
    assert ["while layers were timed", "others took 50%"] in rough["reasons"]
    before = state.profile.model_copy(update={"quality": Quality(others_share=0.4)})
    noisy = quality(replace(state, comparison=quiet, profile=state.profile, baseline=before))
    assert ["while layers were timed", "others took 40%"] in noisy["reasons"], "before counts, too"


def test_the_details_of_a_layer_are_in_the_words_of_the_page(profile):
    facts = {fact["name"] for fact in layer_details(profile, "conv", None)["facts"]}
    assert {"read and written", "peak memory", "weights"} <= facts
    (where, *_) = layer_details(profile, "", None)["reasons"]
    assert "'conv'" in str(layer_details(profile, "conv", None)["chart"])
    assert layer_details(profile, "no such layer", None)["chart"] is None
    assert "limited by: " in where["sentence"] and "overhead" not in where["sentence"]


def test_every_record_with_a_view_has_static_html(profile):
    for record, has_figure in (
        (profile, False),  # its table has bars of its own, and is there at once
        (profile.roofline, True),
        (profile.timeline, True),
        (profiler.explain(profile), False),
        (lab.hardware(), True),
        (profiler.side_by_side(profile, profile), True),
    ):
        panel = lab.show(record)
        data, _ = panel._repr_mimebundle_()
        shown = data["text/html"]
        assert "application/vnd.jupyter.widget-view+json" in data
        assert ('src="data:image/png;base64,' in shown) is has_figure
        words = re.sub(r"<[^>]*>", "", shown)
        assert len(words) > 20, "its figures as text, beside the picture"
        panel.close()
    assert lab.show(profile).figure().png().startswith(b"\x89PNG")


def test_a_live_panel_does_not_wait_for_a_picture_of_its_profile(profile, monkeypatch):
    panel = lab.show(profile)
    monkeypatch.setattr(panel, "figure", lambda **options: pytest.fail("a picture is drawn"))
    (bundle, _), page = panel._repr_mimebundle_(), profile.brief_html()
    assert bundle["text/html"] == page and "conv" in page
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_static_mode_sends_html_with_a_figure_and_no_widget(profile, monkeypatch):
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    for record in (profile, profile.roofline):
        shown = lab.show(record)._repr_mimebundle_()
        assert set(shown) == {"text/html", "text/plain"}
        assert shown["text/html"].count('src="data:image/png;base64,') == 1


def test_showing_a_record_without_a_view_raises():
    with pytest.raises(
        TypeError, match="no widget for a Ceiling; there are widgets for AccelerationStatus"
    ):
        lab.show(lab.hardware().ceilings[0])


def test_a_recipe_is_shown_as_chips():
    panel = lab.show(lab.Recipe([{"fold": {"why": "exact"}}]))
    assert panel.data["steps"] == [{"label": "fold batch-norm", "kind": "fold", "why": "exact"}]


def test_panels_of_one_workload_share_the_selection(profile):
    table, roofline, other = lab.show(profile), lab.show(profile.roofline), lab.show(lab.hardware())
    timeline = lab.show(profile.timeline)
    table.selected = "conv"
    assert (roofline.selected, timeline.selected, other.selected) == ("conv", "conv", "")
    roofline.selected = ""
    assert table.selected == ""


def test_the_workbench_shows_the_unchanged_model(make_bench):
    bench = make_bench()
    assert bench.data["layer"][1] == "conv" and bench.state["status"] == "idle"
    figures = {figure["name"]: figure for figure in bench.state["figures"]}
    assert figures["size"]["now"] > 0 and figures["metric"]["now"] is None
    assert {"roofline", "call_timeline", "results", "hardware"} == set(bench.views)
    assert {"relu", "engine itself"} <= set(bench.state["cannot"])
    assert "conv" not in bench.state["cannot"]


@pytest.mark.parametrize(
    ("value", "is_less_better", "unit"), [(0.9, False, "%"), (0.9, True, ""), (24.1, False, "")]
)
def test_the_headline_says_which_way_its_metric_is_better(value, is_less_better, unit):
    compared = lab.Comparison(
        workload="net", machine="m", baseline="a", metric_name="f1", rounds=1,
        smaller_is_better=is_less_better,
        rows=(lab.Measurement(name="a", threads=1, metric=value),),
    )  # fmt: skip
    shown = {one["name"]: one for one in figures(State(lab.Recipe([]), comparison=compared))}
    assert (shown["f1"]["unit"], shown["f1"]["is_less_better"]) == (unit, is_less_better)
    assert shown["size"]["is_less_better"]


def test_a_clicked_precision_is_applied_measured_and_undone(make_bench):
    bench = make_bench()
    send(bench, {"do": "precision", "layer": "head", "name": "bf16"})
    state = bench.wait(TIMEOUT_S)
    assert (
        bench.recipe == lab.Recipe([{"precision": {"layers": {"head": "bf16"}}}])
        and state.variant is bench.variant
    )
    assert (
        bench.state["precisions"] == {"head": "bf16"}
        and bench.state["changes"]["head"] == "float32 → bfloat16"
    )
    send(bench, {"do": "precision", "layer": "head", "name": ""})
    assert len(bench.recipe) == 0
    send(bench, {"do": "undo"}, {"do": "undo"})
    assert len(bench.recipe) == 0 and bench.served == 4 and not bench.state["can_undo"]


def test_several_requests_at_once_are_served_in_order_each_once(make_bench):
    bench = make_bench()
    send(
        bench,
        {"do": "choose", "step": {"fold": {}}},
        {"do": "choose", "step": {"layout": {}}},
        {"do": "undo"},
    )
    bench.requests = [*bench.requests]
    assert bench.recipe == lab.Recipe(["fold"]) and bench.served == 3
    bench.requests = [{"id": 3, "do": "undo"}, {"id": 4, "do": "redo"}]
    assert bench.recipe == lab.Recipe(["fold", "layout"])


def test_no_message_has_a_result_before_its_request_is_marked_served(make_bench, monkeypatch):
    bench = make_bench()
    sent = []
    monkeypatch.setattr(bench, "_send", lambda message, buffers=None: sent.append(message["state"]))
    send(bench, {"do": "choose", "step": {"fold": {}}}, {"do": "undo"})
    bench.wait(TIMEOUT_S)
    states = [
        (message["served"], [chip["label"] for chip in message["state"]["recipe"]])
        for message in sent
        if "served" in message
    ]
    assert states == [(1, ["fold batch-norm"]), (2, [])]
    before = sent[: next(index for index, message in enumerate(sent) if "served" in message)]
    assert not any(message.get("state", {}).get("recipe") for message in before)


def test_a_dropped_step_is_found_by_its_label_after_earlier_ones_were_dropped(make_bench):
    bench = make_bench()
    for step in ("fold", "layout", {"precision": {"layers": {"head": "bf16"}}}):
        send(bench, {"do": "choose", "step": step if isinstance(step, dict) else {step: {}}})
    first, second, third = (chip["label"] for chip in bench.state["recipe"])
    send(
        bench,
        {"do": "drop", "index": 0, "label": first},
        {"do": "drop", "index": 1, "label": second},
    )
    assert [chip["label"] for chip in bench.state["recipe"]] == [third]
    send(bench, {"do": "drop", "index": 0, "label": first})
    assert len(bench.recipe) == 1, "it is already removed"


def test_the_results_stay_while_the_next_choice_is_measured(make_bench, monkeypatch):
    bench = make_bench()
    seen = []
    bench.observe(lambda change: seen.append("results" in change["new"]), "views")
    bench.observe(lambda change: seen.append("results" in bench.views), "state")
    send(bench, {"do": "choose", "step": {"fold": {}}})
    bench.wait(TIMEOUT_S)
    assert seen and all(seen)


def test_a_failed_request_is_reported_in_the_page_and_the_widget_keeps_working(make_bench):
    bench = make_bench()
    send(bench, {"do": "choose", "step": {"fald": {}}})
    assert "There is no step 'fald'" in bench.state["error"]
    send(bench, {"do": "dance"})
    assert "does not know 'dance'" in bench.state["error"]
    send(bench, {"do": "dismiss"})
    assert bench.state["error"] is None
    send(bench, {"do": "precision", "layer": "nobody", "name": "bf16"})
    assert "matches no layer" in bench.wait(TIMEOUT_S).error and bench.state["recipe"] == []


def test_the_recipe_can_be_saved_and_copied_and_set_from_python(make_bench):
    bench = make_bench()
    bench.recipe = lab.Recipe(["fold", "layout"], workload="small")
    send(bench, {"do": "drop", "index": 1}, {"do": "save"}, {"do": "code"})
    assert lab.Recipe.load(bench.state["saved"]) == lab.Recipe(["fold"])
    assert "lab.Recipe" in bench.state["code"] and "lab.load" not in bench.state["code"]
    bench.session.work.origin = Origin(name="resnet18-tiny")
    send(bench, {"do": "code"})
    assert "lab.load" in bench.state["code"]
    assert bench.wait(TIMEOUT_S).comparison["fold batch-norm"].latency_ms > 0


def test_saving_a_recipe_leaves_earlier_files_as_they_are(make_bench, tmp_path):
    (tmp_path / "recipe.yaml").write_text("mine")
    bench = make_bench()
    saved = []
    for step in ("fold", "layout", "layout"):
        send(bench, {"do": "choose", "step": {step: {}}}, {"do": "save"})
        saved.append(bench.state["saved"])
    assert saved == ["recipe-2.yaml", "recipe-3.yaml", "recipe-3.yaml"]
    assert (tmp_path / "recipe.yaml").read_text() == "mine"
    assert lab.Recipe.load(tmp_path / "recipe-2.yaml") == lab.Recipe(["fold"])
    assert lab.Recipe.load(tmp_path / "recipe-3.yaml") == lab.Recipe(["fold", "layout"])


def test_code_and_file_are_of_the_recipe_that_is_shown(make_bench, monkeypatch):
    bench = make_bench()
    send(bench, {"do": "choose", "step": {"fold": {}}}, {"do": "code"}, {"do": "save"})
    bench.wait(TIMEOUT_S)
    assert "fold" in bench.state["code"] and bench.state["saved"] == "recipe.yaml"
    send(bench, {"do": "undo"})
    assert "code" not in bench.state and "saved" not in bench.state
    send(bench, {"do": "redo"}, {"do": "save"})
    monkeypatch.setattr(lab.Recipe, "save", lambda recipe, path: 1 / 0)
    send(bench, {"do": "choose", "step": {"layout": {}}}, {"do": "save"})
    assert bench.state["error"] and "saved" not in bench.state, "an earlier file is not this one"


def test_selecting_a_layer_shows_its_facts_and_reasons(make_bench):
    bench = make_bench()
    bench.selected = "norm"
    (advised,) = [reason for reason in bench.detail["reasons"] if reason["step"] == {"fold": {}}]
    assert bench.detail["layer"] == "norm" and advised["advice"].startswith(
        "fold batch-norm saves about "
    ), "the same label as its chip"
    bench.selected = "no such layer"
    assert bench.detail["facts"] == []


def test_a_failing_model_is_reported_in_the_page(make_bench):
    class Failing(nn.Module):
        """Fails from its second call on."""

        calls = 0

        def __init__(self):
            super().__init__()
            self.line = nn.Linear(8, 3)

        def forward(self, x):
            self.calls += 1
            return self.line(x if self.calls == 1 else x[..., :3])

    bench = make_bench(Failing())
    assert (
        "fails on its example inputs at layer 'line'" in bench.state["error"]
        and not bench.session.state.is_busy
    )


def test_names_from_a_model_are_escaped(make_bench):
    model = nn.Sequential()
    model.add_module(HTML_NAME.replace(".", ""), nn.Conv2d(3, 4, 1))
    bench = make_bench(model)
    assert bench.data["layer"][1] == HTML_NAME
    assert HTML_NAME not in bench.twin()


def test_withdrawing_the_last_choice_of_a_precision_step_removes_it():
    recipe = lab.Recipe(["fold", {"precision": {"layers": {"a": "bf16", "b": "fp16"}}}])
    assert with_precision(recipe, "a", "") == lab.Recipe(
        ["fold", {"precision": {"layers": {"b": "fp16"}}}]
    )
    assert with_precision(with_precision(recipe, "a", ""), "b", "") == lab.Recipe(["fold"])
    assert without(recipe, 0)[0].kind == "precision"


def test_a_format_is_shown_for_every_layer_that_a_pattern_matches_and_for_the_parts_of_a_block():
    layers = ["stem", "block1", "block1.conv", "block2", "block2.conv", "block2.norm", "head"]
    options = {"layers": {"block?": "bf16", "block2.conv": "int8", "he*": "fp16"}}
    assert formats_in(lab.Recipe(["fold", {"precision": options}]), layers) == {
        "block1": "bf16",
        "block1.conv": "bf16",
        "block2": "bf16",
        "block2.conv": "int8",
        "block2.norm": "bf16",
        "head": "fp16",
    }


def test_a_withdrawn_choice_is_fp32_where_a_pattern_still_gives_the_layer_a_format():
    recipe = lab.Recipe([{"precision": {"layers": {"block*": "bf16"}}}])
    left = with_precision(with_precision(recipe, "block.conv", "int8"), "block.conv", "")
    assert left == lab.Recipe([{"precision": {"layers": {"block*": "bf16", "block.conv": "fp32"}}}])
    assert formats_in(left, ["block.conv", "block.norm"]) == {
        "block.conv": "fp32",
        "block.norm": "bf16",
    }


def test_two_models_with_the_same_name_do_not_share_the_selection():
    works = [
        lab.Workload(nn.Sequential(nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 8, 8)) for _ in range(2)
    ]
    first, second = (profiler.profile(work, seconds=0.05) for work in works)
    assert first.workload == second.workload == "Sequential"
    table, same, other = lab.show(first), lab.show(first.roofline), lab.show(second)
    table.selected = "0"
    assert (same.selected, other.selected) == ("0", "")


def test_the_workbench_and_a_panel_of_its_record_share_the_selection(make_bench):
    bench = make_bench()
    table = lab.show(bench.profile)
    bench.selected = "conv"
    assert table.selected == "conv"


class Operators(TorchDispatchMode):
    """The operators that this thread has run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_the_main_thread_runs_no_operator_once_the_worker_has_started(monkeypatch):
    main, release = threading.get_ident(), worker.release_pool
    with ExitStack() as stack:

        def released():
            release()
            if threading.get_ident() == main and not entered:
                entered.append(stack.enter_context(Operators()))

        entered = []
        monkeypatch.setattr(worker, "release_pool", released)
        bench = lab.Workbench(lab.Workload(Small(), images(), name="small"), rounds=2, seconds=0.1)
        bench.wait(120)
        bench.recipe = lab.Recipe(["fold"])
        bench.wait(120)
    bench.close()
    assert bench.comparison.rows[1:] and entered[0].names == []
