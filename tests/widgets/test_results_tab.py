"""The workbench's results: what was tried is packed with its verdicts, compared and taken along."""

from __future__ import annotations

import html

import pytest

import paifuser_lab as lab
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.records import Candidate, Limit, Origin, Quality, ResultRow, Results
from paifuser_lab.views import figure
from paifuser_lab.widgets.tabs.results import packed_results, report_page
from tests.support.bench import TIMEOUT_S, opened, send
from tests.support.drawn import search_result
from tests.support.models import Small, images

NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture
def bench(tmp_path):
    with opened(lab.Workload(Small(), images(), name="small"), tmp_path, rounds=2) as bench:
        yield bench


@pytest.fixture
def tried(bench):
    for step in ("fold", "layout"):
        bench.session.choose(step)
        bench.wait(TIMEOUT_S)
    return bench


def row(number, ms, interval, **more):
    known = {"label": NAME, "steps": ({"fold": {}},), "step_labels": (NAME,), "before_ms": 10.0}
    return ResultRow(
        number=number, latency_ms=ms, speedup=10 / ms, speedup_interval=interval, **known | more
    )


def test_a_row_is_packed_with_pythons_verdict():
    rows = (
        ResultRow(
            number=0,
            label="As it came",
            latency_ms=10.0,
            metric=0.9,
            speedup=1.0,
            quality=Quality(others_share=0.5),
        ),
        row(1, 5.0, (1.9, 2.1), metric=0.9),
        row(2, 9.9, (0.9, 1.1), metric=0.8),
    )
    results = Results(workload="net", machine="m", metric_name="top-1", rows=rows)
    data = packed_results(results)
    assert [row["tone"] for row in data["rows"]] == ["before", "good", "even"]
    columns = {column["name"]: column for column in data["columns"]}
    assert columns["faster"]["texts"][0] == "1.00 ×", "of itself nothing is rough"
    assert columns["faster"]["spoken"][2].endswith(", no difference")
    assert (columns["worth"]["label"], columns["worth"]["texts"][2]) == ("Top-1", "80 %")
    bars = [row["bar"] for row in data["rows"]]
    ends = [end for bar in bars for end in (bar["now"], *(bar["likely"] or ()))]
    assert max(ends) == 1 and bars[1]["likely"][0] < bars[1]["now"] < bars[1]["likely"][1]
    dots = data["scatter"]["rows"][0][0]["marks"][-1]
    assert dots["key"] == ["0", "1", "2"] and data["pair"] is None
    pair = packed_results(results, (2, 1))["pair"]
    assert "Layer by layer: not kept" in pair["note"]
    first, second = pair["table"]["rows"]
    effect = second["Faster than A"]
    assert effect == {"text": "1.98 × faster · likely 1.79–2.24", "tone": "good"}
    assert (first["Top-1"], second["Top-1"]) == ("80 %", {"text": "90 % +10", "tone": "good"})
    worse = results.model_copy(update={"smaller_is_better": True})
    assert packed_results(worse, (2, 1))["pair"]["table"]["rows"][1]["Top-1"]["tone"] == "bad"
    here = packed_results(results.model_copy(update={"current": 1}))["rows"]
    actions = [row["action"] for row in here]
    assert actions[1] == "here now" and actions[2]["ask"] == {"do": "go_back", "number": 2}
    assert packed_results(None) is None


def test_a_metric_that_is_no_share_is_a_plain_number():
    rows = (row(1, 5.0, (1.9, 2.1), metric=24.1), row(2, 9.9, (0.9, 1.1), metric=26.51))
    results = Results(
        workload="net", machine="m", metric_name="perplexity", smaller_is_better=True, rows=rows
    )
    data = packed_results(results, (1, 2))
    (texts,) = [one["texts"] for one in data["columns"] if one["name"] == "worth"]
    after = data["pair"]["table"]["rows"][1]["Perplexity"]
    assert texts == ["24.1", "26.51"] and after == {"text": "26.51 +10 %", "tone": "bad"}
    assert not any("%" in tick for tick in data["scatter"]["rows"][0][0]["y"]["names"])


def test_what_b_changes_of_a_is_signed_and_has_a_tone():
    sized = [row(number, 5.0, (1.9, 2.1), size_bytes=size) for number, size in enumerate((100, 18))]
    results = Results(workload="net", machine="m", rows=tuple(sized))
    first, second = packed_results(results, (0, 1))["pair"]["table"]["rows"]
    assert (first["Size"], second["Size"]) == ("100 B", {"text": "18 B −82 %", "tone": "good"})
    back = packed_results(results, (1, 0))["pair"]["table"]["rows"][1]["Size"]
    assert back["tone"] == "bad" and back["text"].startswith("100 B +456 %")


def test_a_pair_with_a_failed_row_has_no_effect():
    failed = ResultRow(number=2, label="openvino", failure="not installed")
    rows = (ResultRow(number=0, label="As it came", latency_ms=10.0), row(1, 5.0, (1.9, 2.1)))
    results = Results(workload="net", machine="m", rows=(*rows, failed))

    def effect(*numbers):
        return packed_results(results, numbers)["pair"]["table"]["rows"][1]["Faster than A"]

    assert effect(2, 1) == "–" and effect(0, 1)["text"].startswith("2.0 × faster")


def test_everything_tried_is_shown_and_is_a_record_of_the_bench(tried):
    assert [row["number"] for row in tried.views["results"]["rows"]] == [0, 1, 2]
    assert tried.views["results"]["current"] == 2 == tried.results.current
    assert tried.results is tried.session.state.results


def test_one_click_goes_back_and_undo_returns(tried):
    assert send(tried, do="go_back", number=0).error is None
    assert not tried.recipe.steps and tried.views["results"]["current"] == 0
    send(tried, do="undo")
    assert len(tried.recipe) == 2 and tried.views["results"]["current"] == 2
    assert "no result 9" in send(tried, do="go_back", number=9).error
    assert len(tried.recipe) == 2, "nothing has changed"


def test_two_results_are_compared_layer_by_layer_until_one_is_unmarked(tried):
    send(tried, do="compare_results", numbers=[0, 1])
    pair = tried.views["results"]["pair"]
    assert (pair["first"], pair["second"], pair["note"]) == (0, 1, "")
    assert pair["difference"] == "Only B has fold batch-norm."
    (table,) = tried.views["side_by_side"]["tables"]
    layers = {row["layer"] for row in table["rows"]}
    assert {"conv", "norm"} <= layers
    session, before = tried.session, tried.views["side_by_side"]["title"]
    compared, ms = session.baseline.comparison, session.baseline.ms
    for times in range(10, 30):  # the middle of all timings is far above that of the first ones
        session.baseline.add(compared.with_baseline(times * ms))
    session._restate()
    assert tried.views["side_by_side"]["title"] != before, "its pair's times have changed, too"
    tried.session.measure_again()
    tried.wait(TIMEOUT_S)
    assert tried.views["results"]["pair"]["first"] == 0, "it outlives a new measurement"
    send(tried, do="compare_results", numbers=[])
    assert tried.views["results"]["pair"] is None and "side_by_side" not in tried.views


@pytest.mark.parametrize("numbers", [[0], [0, 1, 2], [0, 9]])
def test_marks_that_are_no_two_results_are_reported(tried, numbers):
    error = send(tried, do="compare_results", numbers=numbers).error
    assert "Mark two results" in error or "no result 9; there are 0, 1, 2" in error
    assert tried.views["results"]["pair"] is None


def test_a_report_and_a_folder_are_written_and_named(tried, tmp_path):
    send(tried, do="report")
    assert tried.state["taken"] == "saved: small-results.html"
    page = (tmp_path / "small-results.html").read_text()
    assert "fold batch-norm" in page and "lab.Recipe(" in page and "<svg" in page
    assert "lab.load(" not in page, "no name loads one's own model"
    state = send(tried, do="save_folder")
    assert state.error is None
    assert tried.state["taken"] == 'saved: lab.load("small-faster", work=original) opens it'
    assert lab.Recipe.load(tmp_path / "small-faster" / "recipe.yaml") == tried.recipe
    assert '"rounds"' in (tmp_path / "small-faster" / "report.json").read_text()
    opened = lab.load("small-faster", work=tried.session.work)
    assert weights_hash(opened.model) == tried.variant.weights_hash
    send(tried, do="undo")
    assert tried.state["taken"] == "", "this recipe was not saved"
    send(tried, do="redo")
    assert tried.state["taken"].startswith("saved: lab.load")


def test_a_folder_that_names_its_original_is_opened_without_it(tried):
    tried.session._own.origin = Origin(name="resnet18-digits-tiny")
    assert send(tried, do="save_folder").error is None
    assert tried.state["taken"] == 'saved: lab.load("small-faster") opens it'


def test_a_folder_waits_for_the_worker_and_is_of_the_recipe_that_was_shown(
    tried, tmp_path, monkeypatch
):
    shown = tried.recipe
    with monkeypatch.context() as patch:
        tried.session.show("taken_result", (shown.digest, "saved: earlier"))
        patch.setattr(tried.session, "_start", lambda: None)  # the worker is busy elsewhere
        send(tried, do="save_folder")
        assert tried.state["taken"] == "", "a new one is asked for"
        assert tried.state["queries"]["save_folder"]["is_waiting"]
        assert not (tmp_path / "small-faster").exists()
    assert send(tried, do="undo").error is None
    assert lab.Recipe.load(tmp_path / "small-faster" / "recipe.yaml") == shown != tried.recipe


def test_no_folder_is_saved_of_a_recipe_that_is_not_applied_yet(tried, tmp_path, monkeypatch):
    monkeypatch.setattr(tried.session, "_start", lambda: None)  # the worker is busy elsewhere
    tried.session.choose({"precision": {"default": "bf16"}})
    assert "is not applied yet" in send(tried, do="save_folder").error
    assert not tried.session.state.queued and not (tmp_path / "small-faster").exists()


def test_no_folder_is_saved_of_what_is_not_measured_yet_or_refused(tried, tmp_path, monkeypatch):
    steps = [{"precision": {"default": "bf16"}}]
    refused = lab.Recipe(["fold", *steps], limit=Limit(output_error=1e-9))
    tried.recipe = refused
    assert tried.wait(TIMEOUT_S).refused
    lab.apply(tried.session._own, lab.Recipe(steps))
    monkeypatch.setattr(tried.session, "_start", lambda: None)  # the worker is busy elsewhere
    for recipe, why in ((lab.Recipe(steps), "not measured yet"), (refused, "allow it first")):
        tried.recipe = recipe
        assert tried.variant.recipe == recipe and why in send(tried, do="save_folder").error
    assert not tried.session.state.queued and not (tmp_path / "small-faster").exists()


def test_text_from_a_model_is_escaped_in_the_report():
    results = Results(workload=NAME, machine="m", rows=(row(0, 5.0, (1.9, 2.1)),))
    page = report_page(results, lab.Recipe(["fold"]))
    assert "<img" not in page and "&lt;img" in page
    assert "default-src 'none'" in html.unescape(page) and "prefers-color-scheme: dark" in page


def test_what_the_search_measured_is_beside_what_was_tried_and_in_the_report(tried):
    assert tried.views["results"]["search"] is None
    best = Candidate(
        label=NAME, steps=({"fold": {}},), why="less", status="measured", rank=1, latency_ms=1.25
    )
    tried.candidates = search_result(best, workload="small")
    sent = tried.views["results"]["search"]
    (row,) = sent["rows"]
    assert sent["words"] == [key for key in row if key in ("change", "status", "effect")]
    assert (row["change"], row["ms"], row["status"]) == (f"1. {NAME}", "1.25", "measured")
    page = report_page(tried.results, tried.recipe, tried.candidates)
    assert "What the search measured" in page and html.escape(f"1. {NAME}") in page
    assert "What the search measured" not in report_page(tried.results, tried.recipe)
    words = html.unescape(page)
    assert words.count(tried.results.title) == 1, "its title is said once"


def test_a_reason_in_the_figure_is_a_clause_that_stands_alone():
    why = "accuracy falls by 0.8167, from 0.9833 to 0.1667, and 0.01 is allowed; most of it is 'a'"
    refused = row(1, 5.0, (1.9, 2.1), refused=why)
    failed = ResultRow(number=2, label="x", failure="a word " * 30)
    first = ResultRow(number=0, label="As it came", latency_ms=10.0)
    results = Results(workload="net", machine="m", rows=(first, refused, failed))
    texts = [text.get_text() for text in figure(results).axes[0].texts]
    assert "refused: accuracy falls by 0.8167" in texts
    assert any(text.startswith("a word") and text.endswith((" a …", " word …")) for text in texts)
