"""The search for a faster model: what it tries, how it ranks, what its limits shut out."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload, apply, compare
from paifuser_lab.engines import available_engines
from paifuser_lab.errors import MeasureError, WorkloadError
from paifuser_lab.machine import hardware, threads
from paifuser_lab.measure import choose_threads
from paifuser_lab.planner import SearchOptions, faster, search
from paifuser_lab.planner.candidates import Change, changes_for
from paifuser_lab.planner.ranking import EXACT, TIE_RATIO, ranked, with_status
from paifuser_lab.profiler.expected import KINDS, expected_of
from paifuser_lab.records import Candidate, Measurement, Record
from tests.support.models import Small, images

FOLD = Change("Fold batch-norm", ({"fold": {}},), "exact")
LAYOUT = Change("Channels last", ({"layout": {}},), "neighbouring bytes")
BF16 = Change("bf16 everywhere", ({"precision": {"default": "bf16"}},), "half the bytes")
IMPOSSIBLE = Change("Attend less", ({"attention": {"keep": 0.5}},), "fewer keys")


def row(label: str = "a", **changes: Any) -> Candidate:
    speedup = changes.pop("speedup", 2.0)
    values: dict[str, Any] = {
        "steps": ({"fold": {}},),
        "why": "",
        "status": "measured",
        "speedup": speedup,
        "latency_ms": 10 / speedup,
        "relative_error": 0.0,
        "word": "faster",
        "sentence": "10 → 5 ms · 2.0 × faster",
    }
    return Candidate(label=label, **(values | changes))


@pytest.fixture
def work() -> Workload:
    torch.manual_seed(0)
    return Workload(Small().eval(), images(), name="small")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Searches among a few changes, with two rounds each."""

    def run(work: Workload, *changes: Change, **options: Any) -> list[Any]:
        monkeypatch.setattr(search, "changes_for", lambda *given, **named: list(changes))
        monkeypatch.setattr(search, "SCREEN_ROUNDS", 2)
        monkeypatch.setattr(search, "LEADER_ROUNDS", 3)
        return list(faster(work, **({"seconds": 30.0} | options)))

    return run


def test_candidates_appear_as_they_are_measured_and_the_leaders_are_measured_longer(work, tried):
    records = tried(work, FOLD, LAYOUT)
    counts = [len(record.rows) for record in records]
    assert counts[0] == 0 and counts[-1] == 2 and counts == sorted(counts)
    assert [record.is_done for record in records] == [False] * (len(records) - 1) + [True]
    last = records[-1]
    assert {candidate.label for candidate in last.rows} == {FOLD.label, LAYOUT.label}
    leaders = [candidate for candidate in last.rows if candidate.rank]
    assert all(candidate.rounds == 3 for candidate in leaders)
    assert last.planned == 2 and last.note == "" and not last.is_interrupted
    for candidate in last.rows:
        assert candidate.latency_ms and candidate.before_ms and candidate.size_bytes
        assert candidate.interval[0] <= candidate.speedup <= candidate.interval[1]


def test_a_change_that_cannot_be_applied_is_refused_with_the_reason(work, tried):
    last = tried(work, IMPOSSIBLE, FOLD)[-1]
    assert last[IMPOSSIBLE.label].status == "refused" and last[IMPOSSIBLE.label].reason
    assert last.rows[-1].label == IMPOSSIBLE.label and last[FOLD.label].status != "refused"


def test_a_stopped_search_keeps_what_it_measured_and_names_what_it_did_not(work, tried):
    measured: list[Any] = []
    real = search.compare

    def counting(*given: Any, **named: Any) -> Any:
        measured.append(given)
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "compare", counting)
        last = tried(work, FOLD, LAYOUT, BF16, should_stop=lambda: len(measured) >= 1)[-1]
    assert last.is_interrupted and last.is_done and len(last.rows) == 1
    assert "not measured: the search was stopped" in last.note


def test_a_search_whose_seconds_end_says_what_it_did_not_measure(work, tried):
    last = tried(work, FOLD, LAYOUT, seconds=1e-6)[-1]
    assert last.rows == () and last.best is None
    assert "2 candidates not measured: the seconds were over" in last.note


def test_without_labelled_data_the_output_error_is_the_limit(work, tried):
    strict = tried(work, BF16, metric_drop=0.0)[-1][BF16.label]
    assert strict.status in ("outside the limits", "lost")
    if strict.status == "outside the limits":
        assert "you allow none" in strict.reason and strict.allow["metric_drop"] > 0
    loose = tried(work, BF16, metric_drop=1.0)[-1][BF16.label]
    assert loose.status in ("measured", "lost")


def test_with_labelled_data_the_loss_of_the_metric_is_the_limit(tried):
    torch.manual_seed(0)
    batch, model = images(), Small().eval()
    with torch.no_grad():
        answer = model(batch)

    def exactness(predict: Any, test: Any) -> float:
        return 1.0 if torch.equal(predict(test[0]), answer) else 0.5

    work = Workload(model, batch, name="small", test=[batch], metric=exactness)
    candidate = tried(work, BF16, metric_drop=0.4)[-1][BF16.label]
    assert (candidate.metric, candidate.metric_lost) == (0.5, 0.5)
    assert candidate.status in ("outside the limits", "lost")
    assert tried(work, BF16, metric_drop=0.5)[-1][BF16.label].status in ("measured", "lost")


def test_for_throughput_a_larger_batch_is_timed(work, tried):
    last = tried(work, FOLD, goal="throughput")[-1]
    assert last.batch == 8 * images().shape[0]
    candidate = last[FOLD.label]
    assert candidate.per_second == pytest.approx(1e3 * last.batch / candidate.latency_ms)


def test_for_size_only_what_is_smaller_is_ranked(work, tried):
    last = tried(work, LAYOUT, BF16, goal="size", metric_drop=1.0)[-1]
    assert last[LAYOUT.label].status == "lost" and "no smaller" in last[LAYOUT.label].reason
    assert last.best.label == BF16.label and last.best.size_bytes < last.baseline_size_bytes


def test_a_record_of_a_search_is_saved_and_read_back(work, tried, tmp_path):
    last = tried(work, FOLD)[-1]
    assert Record.load(last.save(tmp_path / "candidates.json")) == last
    assert FOLD.label in str(last) and FOLD.label in last._repr_html_()
    assert list(last.frame["label"]) == [FOLD.label]
    with pytest.raises(KeyError, match="no candidate 'x'"):
        last["x"]


@pytest.mark.parametrize("seed", range(20))
def test_the_ranking_is_a_permutation_whose_head_is_within_a_tie_of_the_best(seed):
    draw = random.Random(seed)
    rows = [
        row(
            str(index),
            speedup=draw.uniform(0.5, 6),
            steps=tuple({"fold": {}} for _ in range(draw.randint(1, 4))),
        )
        for index in range(draw.randint(1, 12))
    ]
    found = ranked(rows, "latency")
    assert sorted(candidate.label for candidate in found) == sorted(r.label for r in rows)
    assert [candidate.rank for candidate in found] == list(range(1, len(rows) + 1))
    values = [candidate.value("latency") for candidate in found]
    for place, value in enumerate(values):
        assert min(values[place:]) >= TIE_RATIO * value


def test_of_equal_candidates_the_simplest_is_first():
    engine = row("engine", speedup=2.02, steps=({"backend": {"name": "onnxruntime"}},))
    long = row("long", speedup=2.01, steps=({"fold": {}}, {"layout": {}}))
    lossy = row("lossy", speedup=2.03, relative_error=0.01)
    simple = row("simple", speedup=2.0)
    found = ranked([lossy, engine, long, simple], "latency")
    assert [candidate.label for candidate in found] == ["simple", "long", "engine", "lossy"]


def test_what_is_outside_stays_listed_after_the_ranked_with_what_would_allow_it():
    options = SearchOptions(metric_drop=0.0)
    outside = with_status(row(metric_lost=0.0041), options, None)
    assert outside.status == "outside the limits" and outside.allow == {"metric_drop": 0.0041}
    assert outside.reason == "loses 0.41 points: you allow none"
    inside = with_status(outside, SearchOptions(**outside.allow), None)
    assert inside.status == "measured" and inside.reason == "" and inside.allow is None
    options = SearchOptions(metric_drop=0.0, can_train=True)
    cut = with_status(row(metric_lost=0.016, steps=({"prune": {"ratio": 0.5}},)), options, None)
    assert cut.allow == {"may_train": True} and "training is off" in cut.reason
    found = ranked([row("refused", status="refused"), outside, row("in")], "latency")
    assert [candidate.label for candidate in found] == ["in", "a", "refused"]
    assert [candidate.rank for candidate in found] == [1, None, None]


@pytest.mark.parametrize("loss", [1.01e-3, 0.0123, 0.0999, 0.5, 0.991])
def test_what_a_search_is_told_to_allow_lets_the_candidate_in(loss):
    shut_out = with_status(row(relative_error=loss), SearchOptions(metric_drop=0.0), None)
    assert shut_out.status == "outside the limits"
    assert with_status(shut_out, SearchOptions(**shut_out.allow), None).status == "measured"


def test_rounding_of_the_output_is_no_loss():
    options = SearchOptions(metric_drop=0.0)
    assert with_status(row(relative_error=EXACT / 2), options, None).status == "measured"


def test_a_slower_candidate_lost_and_one_that_cannot_be_told_did_not():
    slower = with_status(row(word="slower", speedup=0.5), SearchOptions(), None)
    assert slower.status == "lost" and "slower" in slower.reason
    untold = with_status(row(word="not told"), SearchOptions(), None)
    assert untold.status == "measured"


def test_an_engine_that_does_not_report_its_memory_loses_a_search_for_memory():
    base = Measurement(name="baseline", threads=1, peak_bytes=10)
    lost = with_status(row(peak_bytes=None), SearchOptions("memory"), base)
    assert lost.status == "lost" and "does not report" in lost.reason
    assert with_status(row(peak_bytes=9), SearchOptions("memory"), base).status == "measured"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"goal": "speed"}, MeasureError, "goal='speed' is no goal; choose one of latency"),
        ({"metric_drop": -0.1}, MeasureError, "metric_drop=-0.1 is not a loss"),
        ({"metric_drop": float("nan")}, MeasureError, "is not a loss"),
        ({"metric_drop": True}, MeasureError, "is not a loss"),
        ({"may_train": "yes"}, MeasureError, "may_train='yes' is neither True nor False"),
        ({"seconds": 0}, MeasureError, "leaves no time to measure"),
        ({"may_train": True}, WorkloadError, "small has no train data"),
    ],
)
def test_options_that_cannot_be_used_are_refused_in_a_sentence(work, options, error, message):
    with pytest.raises(error, match=message):
        next(faster(work, **options))


def test_every_change_of_the_real_list_is_a_valid_recipe(work):
    engines = ("eager", "inductor", "onnxruntime", "openvino")
    changes = changes_for(work, hardware(), may_train=True, engines=engines)
    labels = [change.label for change in changes]
    assert len(set(labels)) == len(labels) and all(change.why for change in changes)
    for change in changes:
        assert len(Recipe(change.steps)) == len(change.steps)
    assert any(change.trains for change in changes)
    untrained = changes_for(work, hardware(), may_train=False, engines=("eager",))
    assert not any(change.trains for change in untrained)
    names = {step["backend"]["name"] for c in untrained for step in c.steps if "backend" in step}
    assert names <= {"eager"}


def test_a_search_tries_every_step_whose_effect_advice_predicts(work):
    machine = hardware()
    ceilings = tuple(
        ceiling.model_copy(update={"bf16_gflops": 3 * ceiling.fp32_gflops, "int8_gops": 99.0})
        for ceiling in machine.ceilings
    )
    fast = machine.model_copy(update={"ceilings": ceilings})
    engines = ("eager", "inductor", "onnxruntime", "openvino")
    tried = [step for change in changes_for(work, fast, may_train=False, engines=engines)
             for step in change.steps]  # fmt: skip
    assert [name for name, kind in KINDS.items() if kind.step not in tried] == []


def test_a_model_that_runs_only_with_its_own_batch_is_timed_with_that(tried):
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(x).reshape(2, 4)

    work = Workload(Fixed().eval(), torch.randn(2, 4), name="fixed")
    assert tried(work, FOLD, goal="throughput")[-1].batch is None


def test_a_search_leaves_the_session_s_models_and_hands_over_its_leaders_alone(work, tried):
    kept = apply(work, Recipe(["layout", "fold"]))
    before = list(work.variants)
    last = tried(work, FOLD, BF16, LAYOUT, goal="size", metric_drop=1.0)[-1]
    added = [variant for key, variant in work.variants.items() if key not in before]
    ranked_labels = {candidate.label for candidate in last.rows if candidate.rank}
    assert len(before) + len(added) == len(work.variants) <= len(before) + len(ranked_labels)
    assert apply(work, kept.recipe).module is kept.module
    assert all(variant.work is work for variant in added)
    compare(work, apply(work, Recipe(last.best.steps)), rounds=1, seconds=0.1)


def test_only_the_leaders_models_are_held(work, tried, monkeypatch):
    monkeypatch.setattr(search, "LEADERS", 1)
    held: list[int] = []
    real = search._Search._record

    def counting(self: Any, **named: Any) -> Any:
        held.append(len(self.variants))
        return real(self, **named)

    monkeypatch.setattr(search._Search, "_record", counting)
    last = tried(work, FOLD, BF16, LAYOUT, metric_drop=1.0)[-1]
    assert len(last.rows) == 3 and max(held) <= 1


def test_every_candidate_has_the_baseline_s_threads(work, tried, monkeypatch):
    choose_threads(work, 1)
    compared: list[Any] = []
    real = search.compare

    def keeping(*given: Any, **named: Any) -> Any:
        compared.append(real(*given, **named))
        return compared[-1]

    monkeypatch.setattr(search, "compare", keeping)
    engine = Change("ONNX Runtime", ({"backend": {"name": "onnxruntime"}},), "one call")
    with threads(2):
        tried(work, engine, FOLD)
    assert {row.threads for one in compared for row in one.rows} == {1}


def test_what_a_profile_predicts_most_of_is_tried_first_and_what_builds_slowly_last(work):
    profile = lab.profile(work, seconds=0.1)
    changes = changes_for(work, hardware(), may_train=True, engines=available_engines())
    ordered = search._in_order(changes, "latency", profile)
    assert sorted(map(repr, ordered)) == sorted(map(repr, changes))
    slow = [change.is_slow for change in ordered]
    assert slow == sorted(slow) and any(slow)
    left = {repr(e.kind.step): e.left_ms for e in expected_of(profile)}
    predicted = [
        min(left[repr(step)] for step in change.steps if repr(step) in left)
        for change in ordered
        if not change.is_slow and any(repr(step) in left for step in change.steps)
    ]
    assert len(predicted) > 2 and predicted == sorted(predicted)
    small = search._in_order(changes, "size", profile)
    assert [not change.is_smaller for change in small] == sorted(
        not change.is_smaller for change in small
    )


def test_an_error_of_a_leader_s_metric_refuses_it_and_the_search_ends_in_order(tried):
    batch = images()

    def metric(predict: Any, test: Any) -> float:
        if asked.append(1) or len(asked) > 1:
            raise ValueError("no such label")
        return 1.0

    asked: list[int] = []
    work = Workload(Small().eval(), batch, name="small", test=[batch], metric=metric)
    last = tried(work, FOLD, goal="size")[-1]
    assert last.is_done and last[FOLD.label].status == "refused"
    assert "no such label" in last[FOLD.label].reason


@pytest.mark.parametrize("loss", [math.inf, math.nan, 3.0])
def test_a_loss_that_no_limit_allows_is_outside_without_an_offer(loss):
    outside = with_status(row(relative_error=loss), SearchOptions(metric_drop=1.0), None)
    assert outside.status == "outside the limits" and outside.allow is None


def test_training_is_not_offered_where_there_is_nothing_to_train_with():
    cut = row(metric_lost=0.016, steps=({"prune": {"ratio": 0.5}},))
    for can_train, allow in ((True, {"may_train": True}), (False, {"metric_drop": 0.016})):
        options = SearchOptions(metric_drop=0.0, can_train=can_train)
        assert with_status(cut, options, None).allow == allow
