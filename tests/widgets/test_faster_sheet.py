"""The sheet that makes a model faster: the query, the ranking, applying a candidate."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError, PaifuserError, RecipeError
from paifuser_lab.planner import SearchResult, screening, searching
from paifuser_lab.planner.result import recipe_of
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.records import Candidate, Limit, Origin
from paifuser_lab.session.state import State
from paifuser_lab.widgets.details import offers
from paifuser_lab.widgets.section import packed
from paifuser_lab.widgets.tabs.faster import BAR, SECTION
from tests.support.bench import TIMEOUT_S, opened, send
from tests.support.drawn import search_result

FOLD: dict[str, Any] = {"fold": {}}
LAYOUT: dict[str, Any] = {"layout": {}}
CUT = "Keep 50% of the channels"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    points = [Point(), Point(keep=0.5)]  # the only layer with weights makes the output
    monkeypatch.setattr(screening, "SCREEN_ROUNDS", 1)
    monkeypatch.setattr(searching, "LEADER_ROUNDS", 2)
    monkeypatch.setattr(Space, "points", lambda self: iter(points))
    monkeypatch.setattr(Space, "singles", lambda self: [self.change(point) for point in points])
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    work = lab.Workload(model, torch.randn(1, 3, 8, 8), name="small")
    with opened(work, tmp_path) as bench:
        yield bench


def candidates(*rows: Candidate) -> SearchResult:
    return search_result(*rows, workload="small")


def candidate(label: str, *steps: dict[str, Any], **changes: Any) -> Candidate:
    values: dict[str, Any] = {"why": "because", "status": "measured", "rank": 1, "speedup": 2.0}
    return Candidate(label=label, steps=steps, **(values | changes))


def test_a_search_from_python_fills_the_candidates_and_the_sheet(bench):
    assert bench.candidates is None
    bench.faster(goal="latency", metric_drop=0.0, seconds=20)
    bench.wait(TIMEOUT_S)
    found = bench.candidates
    assert found.is_done and {row.label for row in found.rows} == {"Fold batch-norm", CUT}
    assert found[CUT].status == "refused"
    shown = [
        row["Change"]["hint"] for one in bench.views["faster"]["tables"] for row in one["rows"]
    ]
    assert [hint.partition(": ")[0] for hint in shown] == [row.label for row in found.rows]
    assert bench.state["status"] == "idle" and bench.state["error"] is None


def test_two_requests_of_the_page_search_and_apply_in_one_undo_step(bench):
    ask = {"do": "faster", "goal": "latency", "metric_drop": 0.0, "may_train": False}
    bench.requests = [ask | {"seconds": 20, "id": 1}]
    bench.wait(TIMEOUT_S)
    bench.requests = [{"do": "apply_candidate", "label": "Fold batch-norm", "id": 2}]
    bench.wait(TIMEOUT_S)
    assert [step.kind for step in bench.recipe] == ["fold"]
    assert bench.comparison is not None and bench.state["error"] is None
    assert bench.session.undo()
    assert len(bench.recipe) == 0


def test_an_applied_candidate_names_what_its_model_is_loaded_by(bench):
    bench.session.work.origin = Origin(name="mymodel.py:make")
    bench.candidates = candidates(candidate("Fold", FOLD))
    send(bench, do="apply_candidate", label="Fold")
    assert bench.recipe.workload == "mymodel.py:make"


def test_options_that_cannot_be_used_start_nothing(bench):
    with pytest.raises(MeasureError, match="goal='speed' is no goal"):
        bench.faster(goal="speed")
    with pytest.raises(PaifuserError, match="small has no train data"):
        bench.faster(may_train=True)
    assert not bench.session.state.is_busy and bench.candidates is None


def test_a_search_returns_at_once_and_can_be_stopped(bench, monkeypatch):
    begun, real = threading.Event(), screening.compare

    def endless(*given, should_stop, **named):
        begun.set()
        while not should_stop():
            time.sleep(0.01)
        return real(*given, should_stop=should_stop, **named)

    monkeypatch.setattr(screening, "compare", endless)
    bench.faster(seconds=600)
    assert begun.wait(TIMEOUT_S) and bench.session.state.status == "searching"
    bench.requests = [{"do": "stop", "query": "faster", "id": 1}]
    state = bench.wait(TIMEOUT_S)
    assert not state.is_busy and state.error is None and bench.candidates.is_interrupted


def test_a_candidate_becomes_a_recipe_with_its_reason_and_the_limit_of_the_search():
    sentence = "10 → 5 ms · 2.0 × faster"
    found = candidates(candidate("Both", FOLD, LAYOUT, sentence=sentence, metric_lost=0.2))
    recipe = recipe_of(found, "Both", "small")
    assert [step.kind for step in recipe] == ["fold", "layout"]
    assert all(step.why == "because; 2.0 × faster" for step in recipe)
    assert recipe.limit.metric_drop == 0.2 and recipe.workload == "small"


def test_a_candidate_that_was_allowed_is_within_the_limit_of_its_recipe():
    without_labels = candidate("Half", {"layout": {}}, relative_error=0.25)
    limit = recipe_of(candidates(without_labels), "Half", "small").limit
    assert limit.output_error == 0.25
    with_labels = candidate("Half", {"layout": {}}, relative_error=0.25, metric_lost=0.03)
    assert recipe_of(candidates(with_labels), "Half", "small").limit == Limit(metric_drop=0.03)
    exact = candidates(candidate("Half", {"layout": {}}, relative_error=0.0))
    exact = exact.model_copy(update={"metric_drop": 250.0, "smaller_is_better": True})
    assert recipe_of(exact, "Half", "small").limit == Limit(metric_drop=250.0)
    rounded = candidates(candidate("Fold", FOLD, relative_error=1e-7, metric=0.9, metric_lost=0.0))
    rounded = rounded.model_copy(update={"metric_drop": 0.0})
    assert recipe_of(rounded, "Fold", "small").limit.metric_drop == pytest.approx(9e-4)


def test_only_what_was_measured_can_be_applied():
    found = candidates(candidate("Fold", FOLD), candidate("Not", LAYOUT, status="refused"))
    for label in ("Not", "nothing"):
        with pytest.raises(RecipeError, match=f"no candidate '{label}' to apply; there are Fold"):
            recipe_of(found, label, "small")
    with pytest.raises(RecipeError, match="Nothing was searched yet"):
        recipe_of(None, "Fold", "small")


def shown(*rows: Candidate, **changes: Any) -> list[dict[str, Any]]:
    """The rows of the sheet, in both of its tables."""
    found = packed(candidates(*rows).model_copy(update=changes))
    return [row for table in found["tables"] for row in table["rows"]]


def test_a_row_has_its_speed_up_its_word_and_what_a_press_of_it_sends():
    fold = candidate("Fold", FOLD, interval=(1.6, 2.5), tone="good", size_bytes=50)
    (row,) = shown(fold)
    assert row["Times as fast (likely)"] == {"text": "2.0 ×", "small": "1.6–2.5"}
    assert row[""]["ask"] == {"do": "apply_candidate", "label": "Fold"} and "steps" not in str(row)
    now, before, likely = row[BAR]["bar"].values()
    assert now == before / 2 and likely == pytest.approx([0.32, 0.5])
    (small,) = shown(fold, goal="size", baseline_size_bytes=100)
    assert small[BAR]["bar"] == {"now": 0.5 / 1.25, "before": 1 / 1.25}
    (unknown,) = shown(fold, goal="memory")
    assert unknown[BAR] == {"text": "", "tone": "good"}
    doubtful = shown(fold.model_copy(update={"word": "not told", "tone": "untold"}))[0]
    assert doubtful["Times as fast (likely)"]["text"] == "≈ 1.6–2.5 ×", "no figure stands alone"


def test_a_search_for_throughput_says_its_batch_and_its_rate():
    found = candidates(candidate("Fold", FOLD, latency_ms=6.4, per_second=1250.0))
    found = found.model_copy(update={"goal": "throughput", "batch": 8})
    assert "throughput, batches of 8: 1 of 1 candidate tried" in str(found)
    assert found.table()[0]["per second"] == "1,250" and "1,250" in str(found)
    sheet = packed(found)
    assert sheet["over"].endswith(", batches of 8") and sheet["so_far"].endswith(", batches of 8")
    assert sheet["tables"][0]["rows"][0]["Per second"] == "1,250"


def test_a_range_that_says_nothing_is_a_dash():
    wide = candidate("Fold", FOLD, interval=(0.1, 9.0), word="not told", tone="untold")
    (row,) = shown(wide)
    assert row["Times as fast (likely)"] == {"text": "–", "small": "cannot be told"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metric_lost": 0.004}, "−0.4"),
        ({"metric_lost": -0.002}, "+0.2"),
        ({"metric_lost": 0.00001}, "0.0"),
        ({"relative_error": 0.0123}, "0.012"),
        ({"relative_error": 1e-7}, "0.0"),
    ],
)
def test_a_loss_has_a_sign_and_is_in_points_or_it_is_the_output_error(changes, text):
    (row,) = shown(candidate("Fold", FOLD, **changes), metric_name="top1")
    head = "Top1, points lost or won" if "metric_lost" in changes else "Output differs by"
    assert row[head] == text


def test_a_metric_that_is_no_share_is_a_plain_number_with_its_change_in_percents():
    out = {"rank": None, "status": "outside the limits", "allow": {"metric_drop": 250.0}}
    worse = candidate("Fold", FOLD, **out, metric=26.4, metric_lost=2.4)
    (row,) = shown(worse, metric_name="perplexity", smaller_is_better=True)
    assert row["Perplexity"] == {"text": "26.4 +10 %", "tone": "bad"}
    assert row[""]["text"] == "Allow 250"
    (sharper,) = shown(candidate("Fold", FOLD, metric=30.0, metric_lost=-5.0), metric_name="psnr")
    assert sharper["Psnr"] == {"text": "30 +20 %", "tone": "good"}
    about = {"metric": len, "test": [0], "train": None, "metric_name": "perplexity"}
    context = SimpleNamespace(work=SimpleNamespace(**about, smaller_is_better=True))
    sent = SECTION.state(State(lab.Recipe([])), context)
    assert sent["loss_label"] == "Perplexity may be worse by"
    assert not sent["in_points"] and not sent["is_bounded"]


def test_what_is_outside_the_limits_says_what_would_let_it_in():
    out = {"rank": None, "status": "outside the limits"}
    rows = shown(
        candidate("a", FOLD, **out, metric_lost=0.004, allow={"metric_drop": 0.004}),
        candidate("b", FOLD, **out, allow={"metric_drop": 0.02}),
        candidate("c", FOLD, **out, allow={"may_train": True}),
        candidate("d", FOLD, **out, word="slower", tone="bad"),
    )
    texts = [row[""]["text"] for row in rows]
    assert texts == ["Allow 0.4", "Allow 0.02", "Allow training", "slower"]
    assert rows[1][""]["ask"] == {"do": "faster", "metric_drop": 0.02}


def test_chips_are_the_measured_ranking_once_there_is_one(bench):
    found = candidates(
        candidate("Channels last", LAYOUT, speedup=4.0, rank=1, word="faster"),
        candidate("Fold", FOLD, speedup=2.0, rank=2, word="faster"),
        candidate("Attend", {"attention": {}}, rank=3, word="not told"),
        candidate("Slow", {"fuse": {}}, speedup=0.2, rank=None, status="lost", word="slower"),
    )
    bench.candidates = found
    shown = offers(bench.session.state)
    assert [offer["label"] for offer in shown] == ["Channels last", "Fold"]
    assert [offer["basis"] for offer in shown] == ["measured", "measured"]
    assert [offer["effect"] for offer in shown] == ["4.0 × faster", "2.0 × faster"]
    chosen = replace(bench.session.state, recipe=lab.Recipe([FOLD]))
    assert [offer["basis"] for offer in offers(chosen)] == ["as the only step"] * 2


def test_a_measured_chip_adds_all_that_was_measured(bench):
    engine = {"backend": {"name": "openvino"}}
    bench.candidates = candidates(
        candidate("Channels last", FOLD, LAYOUT, speedup=4.0, rank=1, word="faster"),
        candidate("OpenVINO", FOLD, engine, speedup=2.0, rank=2, word="faster"),
    )
    (offer,) = offers(bench.session.state)
    assert offer["step"] == engine, "it folds by itself; channels last was not measured alone"
