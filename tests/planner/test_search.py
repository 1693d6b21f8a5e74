"""The search for the best recipe: what it tries, predicts and skips, what its limits shut out, what
it keeps.
"""

from __future__ import annotations

import math
import random
import time
from collections import UserDict
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy
import optuna
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload, apply, compare
from paifuser_lab.engines import available_engines
from paifuser_lab.engines.threads import choose_threads
from paifuser_lab.errors import MeasureError, StoppedError, WorkloadError
from paifuser_lab.machine import hardware, threads
from paifuser_lab.model.weights import weights_bytes
from paifuser_lab.planner import (
    SearchOptions,
    contributions,
    screening,
    searches,
    searching,
    store,
)
from paifuser_lab.planner.halves import blind_spot, halves_of
from paifuser_lab.planner.predict import Predictor, expectations, in_order, parts_of
from paifuser_lab.planner.ranking import EXACT, TIE_RATIO, UNJUDGED, nearest, ranked, with_status
from paifuser_lab.planner.result import recipe_of, targets_of
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.profiler.expected import KINDS
from paifuser_lab.records import Comparison, Measurement, Record
from paifuser_lab.workload.generation import next_token_accuracy
from tests.planner.conftest import BF16, FOLD, LABELS, LAYOUT, row
from tests.support.drawn import comparison_of, search_result
from tests.support.models import Small, images


def test_candidates_appear_as_they_are_measured_and_the_leaders_are_measured_longer(work, tried):
    records = tried(work, FOLD, LAYOUT)
    counts = [len(record.rows) for record in records]
    assert counts[0] == 0 and counts[-1] == 2 and counts == sorted(counts)
    assert [record.is_done for record in records] == [False] * (len(records) - 1) + [True]
    last = records[-1]
    assert {candidate.label for candidate in last.rows} == {LABELS[FOLD], LABELS[LAYOUT]}
    leaders = [candidate for candidate in last.rows if candidate.rank]
    assert all(candidate.rounds == 3 for candidate in leaders)
    assert last.planned == 2 and last.note == "" and not last.is_interrupted
    for candidate in last.rows:
        assert candidate.latency_ms and candidate.before_ms and candidate.size_bytes
        assert candidate.interval[0] <= candidate.speedup <= candidate.interval[1]


def test_a_change_that_cannot_be_applied_is_refused_with_the_reason(tried):
    work = Workload(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)).eval(), images(), name="w")
    cut = Point(keep=0.5)  # its only layer makes the output
    last = tried(work, cut, BF16, metric_drop=1.0)[-1]
    refused = last["Keep 50% of the channels"]
    assert refused.status == "refused" and refused.reason
    assert last.rows[-1].label == refused.label and last[LABELS[BF16]].status != "refused"


def test_a_stopped_search_keeps_what_it_measured_and_names_what_it_did_not(work, tried):
    measured: list[Any] = []
    real = screening.compare

    def counting(*given: Any, **named: Any) -> Any:
        measured.append(given)
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screening, "compare", counting)
        last = tried(work, FOLD, LAYOUT, BF16, should_stop=lambda: len(measured) >= 1)[-1]
    assert last.is_interrupted and last.is_done and len(last.rows) == 1
    assert "not measured: the search was stopped" in last.note


@pytest.mark.parametrize(("rounds", "count"), [(2, 1), (3, 2)], ids=["a candidate", "leaders"])
def test_ctrl_c_while_timing_stops_a_search_that_keeps_the_rounds(
    work, tried, monkeypatch, rounds, count
):
    real = screening.compare

    def press(done: int, so_far: Comparison) -> None:
        raise KeyboardInterrupt

    def interrupted(*given: Any, **named: Any) -> Comparison:
        pressed = {"on_round": press} if named["rounds"] == rounds else {}
        return real(*given, **named, **pressed)

    monkeypatch.setattr(screening, "compare", interrupted)
    last = tried(work, BF16, LAYOUT, goal="size", metric_drop=1.0)[-1]
    assert last.is_interrupted and last.is_done and len(last.rows) == count
    assert 1 in {candidate.rounds for candidate in last.rows}


def test_a_search_whose_seconds_end_says_what_it_did_not_measure(work, tried):
    last = tried(work, FOLD, LAYOUT, seconds=1e-6)[-1]
    assert len(last.rows) == 1 and last.rows[0].latency_ms  # one is measured however short it is
    assert "1 candidate not measured: the seconds were over" in last.note


def test_what_is_measured_of_the_machine_takes_from_the_seconds(work, tried, monkeypatch):
    known = hardware()
    monkeypatch.setattr(searching, "hardware", lambda: time.sleep(0.6) or known)
    last = tried(work, FOLD, LAYOUT, seconds=0.5)[-1]
    assert "1 candidate not measured: the seconds were over" in last.note


def test_without_labelled_data_the_output_error_is_the_limit(work, tried):
    strict = tried(work, BF16, metric_drop=0.0)[-1][LABELS[BF16]]
    assert strict.status in ("outside the limits", "lost")
    if strict.status == "outside the limits":
        assert "you allow none" in strict.reason and strict.allow["metric_drop"] > 0
    loose = tried(work, BF16, metric_drop=1.0)[-1][LABELS[BF16]]
    assert loose.status in ("measured", "lost")


def test_with_labelled_data_the_loss_of_the_metric_is_the_limit(tried):
    torch.manual_seed(0)
    batch, model = images(), Small().eval()
    with torch.no_grad():
        answer = model(batch)

    def exactness(predict: Any, test: Any) -> float:
        return 1.0 if torch.equal(predict(test[0]), answer) else 0.5

    work = Workload(model, batch, name="small", test=[batch], metric=exactness)
    candidate = tried(work, BF16, metric_drop=0.4)[-1][LABELS[BF16]]
    assert (candidate.metric, candidate.metric_lost) == (0.5, 0.5)
    assert candidate.status in ("outside the limits", "lost")
    assert tried(work, BF16, metric_drop=0.5)[-1][LABELS[BF16]].status in ("measured", "lost")


def test_a_metric_that_is_better_when_smaller_loses_where_it_rises(tried):
    torch.manual_seed(0)
    batch, model = images(), Small().eval()
    with torch.no_grad():
        answer = model(batch)

    def distance(predict: Any, test: Any) -> float:
        return 0.5 + 0.3 * (not torch.equal(predict(test[0]), answer))

    distance.smaller_is_better = True  # type: ignore[attr-defined]
    work = Workload(model, batch, name="small", test=[batch], metric=distance)
    candidate = tried(work, BF16, metric_drop=0.2)[-1][LABELS[BF16]]
    assert candidate.metric_lost == pytest.approx(0.3)
    assert candidate.status in ("outside the limits", "lost")
    rows = lab.history(work).rows
    assert [row.metric for row in rows if row.label != "fold batch-norm"][-1] == 0.8
    assert tried(work, BF16, metric_drop=0.2)[-1].metric_name == "distance"


def test_a_metric_that_is_nan_for_the_unchanged_model_is_refused_in_a_sentence(tried):
    batch = images()
    work = Workload(
        Small().eval(), batch, name="small", test=[batch], metric=lambda predict, test: math.nan
    )
    with pytest.raises(MeasureError, match="is nan for the unchanged model, so no loss"):
        tried(work, BF16)


def test_for_throughput_a_larger_batch_is_timed(work, tried):
    last = tried(work, FOLD, goal="throughput")[-1]
    assert last.batch == 8 * images().shape[0]
    candidate = last[LABELS[FOLD]]
    assert candidate.per_second == pytest.approx(1e3 * last.batch / candidate.latency_ms)


def test_for_size_only_what_is_smaller_is_ranked(work, tried):
    last = tried(work, LAYOUT, BF16, goal="size", metric_drop=1.0)[-1]
    base = Measurement(name="baseline", threads=1, size_bytes=10)
    assert with_status(row(size_bytes=10), SearchOptions("size"), base).reason == "no smaller"
    assert last.first.label == LABELS[BF16] and last.first.size_bytes < last.baseline_size_bytes


def test_a_record_of_a_search_is_saved_and_read_back(work, tried, tmp_path):
    last = tried(work, FOLD)[-1]
    assert Record.load(last.save(tmp_path / "candidates.json")) == last
    assert LABELS[FOLD] in str(last) and LABELS[FOLD] in last._repr_html_()
    assert list(last.frame["label"]) == [LABELS[FOLD]]
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


def test_what_is_clearly_faster_comes_before_a_simpler_equal_that_is_not(work, tried, monkeypatch):
    found = {
        FOLD: row(speedup=1.02, interval=(0.99, 1.05), word="no difference"),
        LAYOUT: row(speedup=1.045, interval=(1.01, 1.08)),
    }

    def screened(self: Any, change: Any, *given: Any) -> screening.Screened:
        named = {"label": change.label, "steps": change.steps}
        known = found[change.point].model_copy(update=named)
        return screening.Screened(known, None, apply(work, Recipe(change.steps)))

    apart: list[int] = []
    monkeypatch.setattr(screening.Screen, "screened", screened)
    monkeypatch.setattr(searching._Search, "_leaders", lambda self: iter(()))
    monkeypatch.setattr(
        searching,
        "contributions_of",
        lambda work, best, *given, **named: apart.append(len(best.recipe)) or (),
    )
    last = tried(work, FOLD, LAYOUT)[-1]
    assert [each.label for each in last.ranked] == [LABELS[LAYOUT], LABELS[FOLD]]
    assert len(last.best.steps) == 2 and last.reason == ""
    assert apart == [2], "what each of its steps contributes is measured"


def test_what_is_outside_stays_listed_after_the_ranked_with_what_would_allow_it():
    options = SearchOptions(metric_drop=0.0)
    outside = with_status(row(metric_lost=0.0041), options, None)
    assert outside.status == "outside the limits" and outside.allow == {"metric_drop": 0.0041}
    assert outside.reason == "loses 0.41 points: you allow none"
    options = SearchOptions(metric_drop=0.5, smaller_is_better=True)
    worse = with_status(row(metric=0.7, metric_lost=0.6), options, None)
    assert worse.reason == "the metric is worse by 0.6: you allow 0.5"
    inside = with_status(outside, SearchOptions(**outside.allow), None)
    assert inside.status == "measured" and inside.reason == "" and inside.allow is None
    options = SearchOptions(metric_drop=0.0, can_train=True)
    cut = with_status(row(metric_lost=0.016, steps=({"prune": {"ratio": 0.5}},)), options, None)
    assert cut.allow == {"may_train": True} and "training is off" in cut.reason
    found = ranked([row("refused", status="refused"), outside, row("in")], "latency")
    assert [candidate.label for candidate in found] == ["in", "a", "refused"]
    assert [candidate.rank for candidate in found] == [1, None, None]


def test_a_metric_that_is_better_when_smaller_may_lose_more_than_one(work):
    def distance(predict: Any, test: Any) -> float:
        return 300.0

    options = SearchOptions(metric_drop=50, smaller_is_better=True)
    with pytest.raises(MeasureError, match=r"from 0 \(none\) to 1, where 0.01 is one point"):
        options.check(work)
    distance.smaller_is_better = True  # type: ignore[attr-defined]
    work.metric, work.test = distance, [torch.zeros(1)]
    options.check(work)
    with pytest.raises(MeasureError, match=r"metric_drop=inf .* from 0 \(none\) on\."):
        replace(options, metric_drop=math.inf).check(work)
    none = replace(options, metric_drop=0)
    outside = with_status(row(metric=543.0, metric_lost=243.0), none, None)
    assert outside.reason == "the metric is worse by 240: you allow none"
    assert outside.allow == {"metric_drop": 250.0}
    assert with_status(outside, replace(options, **outside.allow), None).status == "measured"
    endless = with_status(row(metric=math.inf, metric_lost=math.inf), none, None)
    assert endless.status == "outside the limits" and endless.allow is None


@pytest.mark.parametrize("loss", [1.01e-3, 0.0123, 0.0999, 0.5, 0.991])
def test_what_a_search_is_told_to_allow_lets_the_candidate_in(loss):
    shut_out = with_status(row(relative_error=loss), SearchOptions(metric_drop=0.0), None)
    assert shut_out.status == "outside the limits"
    assert with_status(shut_out, SearchOptions(**shut_out.allow), None).status == "measured"


def test_rounding_of_the_output_is_no_loss():
    options = SearchOptions(metric_drop=0.0)
    assert with_status(row(relative_error=EXACT / 2), options, None).status == "measured"


def test_rounding_of_a_metric_is_no_loss_where_the_output_is_kept():
    options = SearchOptions(metric_drop=0.0)
    near = row(relative_error=1e-7, metric=0.9, metric_lost=1e-8)
    assert with_status(near, options, None).status == "measured"
    changed = near.model_copy(update={"relative_error": 0.01})
    assert with_status(changed, options, None).status == "outside the limits"


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


def test_an_engine_that_does_not_report_its_memory_is_not_within_a_limit_of_it():
    options = SearchOptions(limits={"peak_bytes": 10})
    unknown = with_status(row("engine", peak_bytes=None), options, None)
    assert unknown.status == "lost" and "does not report" in unknown.reason
    large = with_status(row("large", peak_bytes=20), options, None)
    found = ranked([unknown, large], "latency")
    assert [candidate.rank for candidate in found] == [None, None]
    assert "the nearest is 'large'" in nearest(found, options)


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
        searches(work, **options)


ENGINES = ("eager", "replay", "inductor", "onnxruntime", "openvino")


@pytest.fixture
def fast() -> Any:
    """A machine that computes faster in each format."""
    machine = hardware()
    ceilings = tuple(
        ceiling.model_copy(
            update={"bf16_gflops": 3 * ceiling.fp32_gflops, "fp16_gflops": 50.0, "int8_gops": 99.0}
        )
        for ceiling in machine.ceilings
    )
    return machine.model_copy(update={"ceilings": ceilings})


def test_every_point_of_the_space_is_a_valid_recipe_with_a_name_of_its_own(work, fast):
    space = Space.of(work, fast, ENGINES, may_train=True)
    changes = [space.change(point) for point in space.points()]
    assert len({change.label for change in changes}) == len(changes) > 200
    assert Point("replayed", "bf16") in {change.point for change in changes}
    assert len({repr(change.steps) for change in changes}) == len(changes)
    for change in changes:
        assert change.why and len(Recipe(change.steps)) == len(change.steps)
    singles = space.singles()
    assert {change.point for change in singles} <= {change.point for change in changes} | {Point()}
    assert {len(parts_of(change.point)) for change in singles} == {0, 1}


def test_without_training_and_other_engines_none_is_in_the_space(work):
    space = Space.of(work, hardware(), ("eager",))
    changes = [space.change(point) for point in space.points()]
    assert not any(change.point.is_trained for change in changes)
    names = {step["backend"]["name"] for c in changes for step in c.steps if "backend" in step}
    assert names <= {"eager"}
    exact = Space.of(work, hardware(), ENGINES, is_exact=True)
    assert {(point.format, point.keep, point.is_trained) for point in exact.points()} == {
        ("fp32", 1.0, False)
    }
    assert not any(point.memory == "reuse" for point in exact.points())
    replayed = [point for point in exact.points() if "replayed" in point.engine]
    assert {len(exact.steps(point)) for point in replayed} == {2, 4}, "alone, and after what joins"
    assert all(exact.steps(point)[-1]["backend"]["name"] == "replay" for point in replayed)
    waiting = [point.threads for point in exact.points() if "spinning" in point.engine]
    assert waiting and 1 not in waiting


def test_a_search_tries_every_step_whose_effect_advice_predicts(work, fast):
    tried = [step for change in Space.of(work, fast, ENGINES).singles() for step in change.steps]
    assert [name for name, kind in KINDS.items() if kind.step not in tried] == []


def test_what_combinations_reach_is_the_product_of_their_parts_and_their_losses_the_sum():
    predict = Predictor()
    predict.learn(Point(), 0.9, 0.0)
    predict.learn(Point(engine="openvino"), 0.45, 0.0)
    predict.learn(Point(keep=0.5), 0.6, 0.02)
    both = predict(Point(engine="openvino", keep=0.5))
    assert both.ratio == pytest.approx(0.9 * 0.5 * (0.6 / 0.9)) and both.loss == 0.02
    unknown = predict(Point(engine="openvino", format="int8"))
    assert unknown.error > both.error and unknown.best < unknown.ratio
    predict.learn(Point(engine="openvino", keep=0.5), 0.5, 0.01)
    assert predict(Point(engine="openvino", keep=0.5)).ratio == 0.5


def test_the_error_of_predictions_is_that_of_the_combinations_measured():
    predict = Predictor()
    for engine, ratio in (("openvino", 0.5), ("inductor", 0.7)):
        predict.learn(Point(engine=engine), ratio, 0.0)
        for count in (1, 2):
            predict.learn(Point(threads=count), 1.0, 0.0)
            predict.learn(Point(engine=engine, threads=count), ratio * 1.1, 0.0)
    assert predict.error == pytest.approx(math.log(1.1))


def test_a_model_that_runs_only_with_its_own_batch_is_timed_with_that(tried):
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(x).reshape(2, 4)

    work = Workload(Fixed().eval(), torch.randn(2, 4), name="fixed")
    assert tried(work, BF16, goal="throughput", metric_drop=1.0)[-1].batch is None


def test_a_search_leaves_the_session_s_models_and_hands_over_its_leaders_alone(work, tried):
    kept = apply(work, Recipe(["layout", "fold"]))
    before = list(work.variants)
    last = tried(work, FOLD, BF16, LAYOUT, goal="size", metric_drop=1.0)[-1]
    added = [variant for key, variant in work.variants.items() if key not in before]
    ranked_labels = {candidate.label for candidate in last.rows if candidate.rank}
    assert len(before) + len(added) == len(work.variants) <= len(before) + len(ranked_labels)
    assert apply(work, kept.recipe).module is kept.module
    assert all(variant.work is work for variant in added)
    compare(work, apply(work, recipe_of(last, last.first.label)), rounds=1, seconds=0.1)


def test_models_that_may_have_read_half_of_the_test_data_are_not_handed_over(work, tried):
    choose_threads(work, torch.get_num_threads())
    work.test, work.metric = [images(), images()], lambda predict, test: 1.0
    tried(work, BF16, LAYOUT, goal="size", metric_drop=1.0)
    kinds = {step.kind for variant in work.variants.values() for step in variant.recipe}
    assert kinds == {"fold", "layout"}, "exact steps read no data"
    work.train = [(images(), torch.zeros(2))]
    last = tried(work, BF16, goal="size", metric_drop=1.0)[-1]
    handed = [variant.module for variant in work.variants.values()]
    assert apply(work, recipe_of(last, last.first.label)).module in handed


def test_what_was_not_judged_on_unseen_test_data_is_not_the_best(work, tried, monkeypatch):
    monkeypatch.setattr(searching, "LEADERS", 1)
    work.test, values = [images(), images()], chain([1.0], repeat(0.9))
    work.metric = lambda predict, test: next(values)
    half = Point(format="fp16")
    last = tried(work, BF16, half, goal="size", metric_drop=1.0)[-1]
    assert sorted(row.status for row in last.rows) == ["lost", "measured"]
    assert {row.reason for row in last.rows} == {"", UNJUDGED}


def test_only_the_leaders_models_are_held(work, tried, monkeypatch):
    monkeypatch.setattr(searching, "LEADERS", 1)
    held: list[int] = []
    real = searching._Search._record

    def counting(self: Any, **named: Any) -> Any:
        held.append(len(self.variants))
        return real(self, **named)

    monkeypatch.setattr(searching._Search, "_record", counting)
    last = tried(work, FOLD, BF16, LAYOUT, metric_drop=1.0)[-1]
    assert len(last.rows) == 3 and max(held) <= 2  # the best, and the best exact


def test_every_candidate_has_the_baseline_s_threads(work, tried, monkeypatch):
    choose_threads(work, 1)
    compared: list[Any] = []
    real = screening.compare

    def keeping(*given: Any, **named: Any) -> Any:
        compared.append(real(*given, **named))
        return compared[-1]

    monkeypatch.setattr(screening, "compare", keeping)
    with threads(2):
        tried(work, Point(engine="onnxruntime"), FOLD)
    assert {row.threads for one in compared for row in one.rows} == {1}


def test_what_a_profile_predicts_most_of_is_tried_first_and_what_builds_slowly_last(work):
    profile = lab.profile(work, seconds=0.1)
    space = Space.of(work, hardware(), available_engines())
    changes, expected = space.singles(), expectations(space, profile)
    left_of = Predictor(expected).left
    ordered = list(in_order(changes, "latency", left_of))
    assert sorted(map(repr, ordered)) == sorted(map(repr, changes))
    slow = [change.is_slow for change in ordered]
    assert slow == sorted(slow) and any(slow)
    left = [expected[c.point][0] for c in ordered if not c.is_slow and c.point in expected]
    assert len(left) > 2 and left == sorted(left)
    small = list(in_order(changes, "size", left_of))
    assert [not change.is_smaller for change in small] == sorted(
        not change.is_smaller for change in small
    )


def test_without_a_profile_whole_graphs_are_tried_first_then_formats_in_the_fastest(work, fast):
    predict, tried = Predictor(), []
    ratios = {"openvino": 0.3, "onnxruntime": 0.4}
    for change in in_order(Space.of(work, fast, ENGINES).singles(), "latency", predict.left):
        tried.append(change.point)
        predict.learn(change.point, ratios.get(change.point.engine, 0.95), 0.0)
    names = ("as it is", "openvino", "onnxruntime", "onnxruntime spinning")
    whole = [Point(engine=name) for name in names]
    quick = [point for point in tried if "in bf16" not in point.engine]
    assert quick[: len(whole)] == whole
    formats = [point for point in quick if point.format != "fp32"]
    fastest = [ratios.get(point.engine, 0.95) for point in formats if point.engine != "inductor"]
    assert {0.3, 0.4, 0.95} == set(fastest) and fastest == sorted(fastest)
    deep, light, joined = Point(keep=0.5), Point(keep=0.75), Point(engine="channels last, joined")
    order = [*(point for point in formats if point.engine in ratios), deep, joined, light]
    assert [point for point in tried if point in order] == order


def test_after_half_of_the_time_the_fastest_combinations_within_the_limit_are_measured(
    work, monkeypatch
):
    cut, lossy, slow = Point(keep=0.5), Point(keep=0.75), Point(threads=1)
    parts = [LAYOUT, cut, lossy, slow, BF16]
    speedups = {LAYOUT: 1.5, cut: 2.0, lossy: 4.0, slow: 0.8}
    both, worse = Point(engine="channels last", keep=0.5), Point(keep=0.5, threads=1)
    unknown = Point(engine="channels last", keep=0.5, format="bf16")
    losing = Point(engine="channels last", keep=0.75)
    measured: list[Point] = []

    def screened(self: Any, change: Any, *given: Any) -> screening.Screened:
        measured.append(change.point)
        lost = 0.02 if change.point == lossy else 0.0
        speedup = speedups.get(change.point, 1.0)
        found = row(change.label, steps=change.steps, speedup=speedup, metric_lost=lost)
        return screening.Screened(found)

    monkeypatch.setattr(Space, "singles", lambda self: [self.change(point) for point in parts])
    points = [*parts, worse, unknown, losing, both]
    monkeypatch.setattr(Space, "points", lambda self: iter(points))
    monkeypatch.setattr(searching, "in_order", lambda changes, *given: iter(changes))
    monkeypatch.setattr(screening.Screen, "screened", screened)
    monkeypatch.setattr(
        searching._Search,
        "_is_screened",
        lambda self, share=1.0: len(self.rows) >= (4 if share == searching.PARTS_SHARE else 6),
    )
    monkeypatch.setattr(searching._Search, "_leaders", lambda self: iter(()))
    list(searches(work, metric_drop=0.01, seconds=60))
    assert measured == [LAYOUT, cut, lossy, slow, both, BF16]


def test_what_few_rounds_do_not_show_to_be_clearly_better_is_timed_again_with_the_leaders(
    work, tried, monkeypatch
):
    exact = row("exact", speedup=1.3, interval=(1.2, 1.4))
    unsure = row("unsure", speedup=2.0, interval=(1.1, 2.4), metric_lost=0.005)
    assert [each.rank for each in ranked([exact, unsure], "latency")] == [1, None]
    first, second = ranked([exact, unsure], "latency", is_guarded=False)
    assert (first.label, first.rank, second.rank) == ("unsure", 1, 2)

    leading: list[Point] = []
    found = {LAYOUT: exact, BF16: unsure}

    def screened(self: Any, change: Any, *given: Any) -> screening.Screened:
        named = {"label": change.label, "steps": change.steps}
        return screening.Screened(found[change.point].model_copy(update=named))

    monkeypatch.setattr(screening.Screen, "screened", screened)
    monkeypatch.setattr(
        searching._Search, "_leaders", lambda self: leading.extend(self._leading()) or iter(())
    )
    tried(work, LAYOUT, BF16, metric_drop=0.01)
    assert leading == [BF16, LAYOUT]


def timed_by_hand(monkeypatch: pytest.MonkeyPatch, found: dict[Point, Any], leaders: float) -> None:
    """Candidates as they are given, and one leader that becomes so many times as fast as 10 ms."""

    def screened(self: Any, change: Any, *given: Any) -> screening.Screened:
        named = {"label": change.label, "steps": change.steps}
        return screening.Screened(found[change.point].model_copy(update=named))

    def compared(self: Any, variants: dict[str, Any], *given: Any) -> Comparison:
        rows = [Measurement(name="baseline", threads=1, latency_ms=10.0)]
        rows += [
            Measurement(
                name=label, threads=1, latency_ms=10 / leaders, speedup=leaders,
                speedup_interval=(leaders - 0.1, leaders + 0.1),
            )
            for label in variants
        ]  # fmt: skip
        return comparison_of(*rows, workload="small", rounds=20)

    monkeypatch.setattr(screening.Screen, "screened", screened)
    monkeypatch.setattr(screening.Screen, "compared", compared)
    monkeypatch.setattr(searching, "LEADERS", 1)


def test_what_was_only_lucky_in_few_rounds_ranks_behind_the_leaders(work, tried, monkeypatch):
    found = {
        FOLD: row(speedup=1.5, interval=(1.4, 1.6)),
        LAYOUT: row(speedup=1.4, interval=(1.3, 1.5)),
    }
    timed_by_hand(monkeypatch, found, leaders=1.2)
    last = tried(work, FOLD, LAYOUT)[-1]
    assert [(each.label, each.speedup) for each in last.ranked] == [
        (LABELS[FOLD], 1.2),
        (LABELS[LAYOUT], 1.4),
    ]
    lucky, exact = row("lucky", speedup=1.4), row("exact", speedup=1.2)
    lossy = row("lossy", speedup=1.3, interval=(1.25, 1.35), relative_error=0.005)
    order = ranked([lucky, exact, lossy], "latency", leaders={"exact", "lossy"})
    assert [each.label for each in order] == ["lossy", "exact", "lucky"]


def test_a_limit_of_latency_is_of_the_milliseconds_that_are_shown(work, tried, monkeypatch):
    slow_rounds = {"before_ms": 12.0, "latency_ms": 6.0, "speedup": 2.0}
    found = {FOLD: row(speedup=2.5), LAYOUT: row(**slow_rounds)}
    timed_by_hand(monkeypatch, found, leaders=2.5)
    last = tried(work, FOLD, LAYOUT, limits={"latency_ms": 5.5})[-1]
    assert last[LABELS[LAYOUT]].latency_ms == 5.0, "12 ms in its rounds, 10 with the leaders"
    assert last[LABELS[LAYOUT]].status == "measured"


def test_with_time_for_one_candidate_a_search_measures_an_engine(work, tried):
    engine = Point(engine="onnxruntime")
    (row,) = tried(work, BF16, engine, seconds=1e-6)[-1].rows
    assert row.steps[-1]["backend"]["name"] == "onnxruntime"


def test_an_error_of_a_leader_s_metric_refuses_it_and_the_search_ends_in_order(tried):
    batch = images()

    def metric(predict: Any, test: Any) -> float:
        if asked.append(1) or len(asked) > 1:
            raise ValueError("no such label")
        return 1.0

    asked: list[int] = []
    work = Workload(Small().eval(), batch, name="small", test=[batch], metric=metric)
    last = tried(work, FOLD, goal="size")[-1]
    assert last.is_done and last[LABELS[FOLD]].status == "refused"
    assert "no such label" in last[LABELS[FOLD]].reason


@pytest.mark.parametrize("loss", [math.inf, math.nan, 3.0])
def test_a_loss_that_no_limit_allows_is_outside_without_an_offer(loss):
    outside = with_status(row(relative_error=loss), SearchOptions(metric_drop=1.0), None)
    assert outside.status == "outside the limits" and outside.allow is None


def test_training_is_not_offered_where_there_is_nothing_to_train_with():
    cut = row(metric_lost=0.016, steps=({"prune": {"ratio": 0.5}},))
    for can_train, allow in ((True, {"may_train": True}), (False, {"metric_drop": 0.016})):
        options = SearchOptions(metric_drop=0.0, can_train=can_train)
        assert with_status(cut, options, None).allow == allow


def test_what_changes_the_output_must_be_clearly_faster_than_what_keeps_it():
    exact = row("exact", speedup=2.0, interval=(1.9, 2.1))
    near = row("near", speedup=2.1, interval=(1.95, 2.3), relative_error=0.005)
    clear = row("clear", speedup=2.5, interval=(2.2, 2.8), relative_error=0.005)
    found = {candidate.label: candidate for candidate in ranked([exact, near, clear], "latency")}
    assert found["clear"].rank == 1 and found["exact"].rank == 2
    assert found["near"].status == "lost" and "'exact'" in found["near"].reason


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_ranked_past_a_limit_or_without_beating_the_best_exact_one(seed):
    draw = random.Random(seed)
    limits = {"size_bytes": draw.uniform(1, 100), "output_error": draw.uniform(1e-3, 0.1)}
    options = SearchOptions(metric_drop=draw.uniform(0, 0.05), limits=limits)
    rows = []
    for index in range(30):
        speedup = draw.uniform(0.5, 5)
        error = draw.choice([0.0, draw.uniform(0, 0.2)])
        spread = draw.uniform(1, 1.2)
        rows.append(
            row(
                str(index),
                speedup=speedup,
                interval=(speedup / spread, speedup * spread),
                relative_error=error,
                metric_lost=draw.choice([None, error]),
                size_bytes=draw.randint(1, 100),
                word="faster" if speedup > 1 else "slower",
            )
        )
    found = ranked([with_status(each, options, None) for each in rows], "latency")
    inside = [candidate for candidate in found if candidate.rank is not None]
    exact = max((c.speedup for c in inside if c.loss <= EXACT), default=1.0)
    for candidate in inside:
        assert candidate.size_bytes <= limits["size_bytes"]
        assert candidate.relative_error <= limits["output_error"]
        assert candidate.loss <= max(options.metric_drop, EXACT)
        assert candidate.loss <= EXACT or candidate.interval[0] > exact


def test_where_no_candidate_meets_a_limit_the_nearest_is_named_with_its_figures(work, tried):
    last = tried(work, FOLD, BF16, metric_drop=1.0, limits={"size_bytes": 1.0})[-1]
    assert last.best.steps == () and last.first is None
    outside = [row for row in last.rows if row.status == "outside the limits"]
    nearest_one = min(outside, key=lambda row: row.size_bytes)
    assert f"the nearest is '{nearest_one.label}'" in last.reason
    assert f"{nearest_one.size_bytes:,}" in last.reason and last.reason in str(last)


def test_keeping_the_model_is_an_answer(work):
    even = row("even", word="no difference", rank=1)
    assert "needs more seconds" in nearest([], SearchOptions())
    assert nearest([even], SearchOptions()).startswith("Keep the model as it is")
    assert nearest([row("fast", rank=1)], SearchOptions()) == ""


def test_a_model_that_does_not_fit_is_changed_also_where_that_is_not_faster(work, tried):
    even, lost = row("even", word="no difference", rank=1), row("slow", status="lost")
    assert nearest([even], SearchOptions(), must_change=True) == ""
    assert "goal='size' finds it" in nearest([lost], SearchOptions(), must_change=True)
    half = 0.75 * weights_bytes(work.model)
    last = tried(work, BF16, metric_drop=1.0, limits={"size_bytes": half})[-1]
    assert last.must_change and bool(last.best.steps) == (last.first is not None)


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"watts": 3}, "limits has no 'watts'"), ({"size_bytes": -1}, "=-1 is no limit")],
)
def test_a_limit_that_is_not_known_is_refused(work, limits, message):
    with pytest.raises(MeasureError, match=message):
        searches(work, limits=limits)


def test_the_frontier_holds_what_no_other_beats_and_targets_the_least_loss():
    rows = [
        row("a", speedup=4.0, metric_lost=0.02, rank=1),
        row("b", speedup=3.0, metric_lost=0.01, rank=2),
        row("c", speedup=2.5, metric_lost=0.015, rank=3),
        row("d", speedup=1.6, metric_lost=0.0, rank=4),
    ]
    found = search_result(*rows, metric_drop=0.02)
    assert [candidate.label for candidate in found.frontier] == ["a", "b", "d"]
    targets = targets_of(found, (1.5, 2.0, 3.5, 5.0))
    assert [target.label for target in targets] == ["d", "b", "a", None]


@pytest.mark.parametrize("rows", [(), (row(speedup=4.0, rank=1),)])
def test_the_best_recipe_names_the_workload_as_it_is_loaded(rows):
    found = search_result(*rows, loaded_as="models/net.onnx")
    assert found.best.workload == "models/net.onnx" and len(found.best.steps) == len(rows)
    assert found.model_copy(update={"loaded_as": ""}).best.workload == "net"


def test_test_data_are_halved_by_batches_or_by_samples(work):
    batches = [(torch.full((2, 1), float(i)), torch.zeros(2)) for i in range(5)]
    work.metric, work.test = (lambda predict, test: 0.0), batches
    seen, unseen, note = halves_of(work)
    assert (len(seen.test), len(unseen.test), note) == (3, 2, "")
    work.test = [(torch.arange(5.0)[:, None], torch.arange(5))]
    seen, unseen, _ = halves_of(work)
    assert seen.test[0][1].tolist() == [0, 2, 4] and unseen.test[0][0][:, 0].tolist() == [1, 3]
    work.test = [(torch.zeros(1, 1), torch.zeros(1))]
    assert halves_of(work)[2].startswith("the test data cannot be halved")


def test_test_data_are_halved_in_all_their_parts_or_not_at_all(work):
    work.metric = lambda predict, test: 0.0
    work.test = [(UserDict(x=torch.arange(4)), torch.arange(4))]
    seen, unseen, note = halves_of(work)
    parts = [[half.test[0][0]["x"].tolist(), half.test[0][1].tolist()] for half in (seen, unseen)]
    assert (parts, note) == ([[[0, 2], [0, 2]], [[1, 3], [1, 3]]], "")
    for labels in ([0, 1, 2, 3], numpy.arange(4)):
        work.test = [(torch.arange(4.0)[:, None], labels)]
        seen, unseen, note = halves_of(work)
        assert seen is unseen is work and note.startswith("the test data cannot be halved")


def test_leaders_are_judged_on_data_that_chose_nothing(tried):
    torch.manual_seed(0)
    asked: list[int] = []

    def metric(predict: Any, test: Any) -> float:
        asked.append(id(test[0]))
        return float(predict(test[0]).detach().abs().mean())

    batches = [images(), images()]
    work = Workload(Small().eval(), images(), name="small", test=batches, metric=metric)
    last = tried(work, BF16, goal="size", metric_drop=1.0)[-1]
    assert asked[0] == id(batches[0]) and asked[-1] == id(batches[1])
    assert last[LABELS[BF16]].metric == pytest.approx(
        float(
            apply(work, Recipe([{"precision": {"default": "bf16"}}]))
            .model(batches[1])
            .detach()
            .abs()
            .mean()
        ),
        rel=0.05,
    )


def test_a_loss_that_the_test_data_cannot_show_is_noted(tried):
    batch = (images(), torch.zeros(len(images())))
    work = Workload(
        Small().eval(), images(), name="small", test=[batch, batch],
        metric=lambda predict, test: 1.0,
    )  # fmt: skip
    assert "a loss of 1 cannot be seen" in tried(work, FOLD)[-1].note


def test_a_metric_that_is_no_share_of_the_samples_has_no_blind_spot(work):
    work.test, work.metric = [(images(), torch.zeros(len(images())))], lambda predict, test: 1.0
    assert blind_spot(work, 0.01)
    work.metric.smaller_is_better = True
    assert not blind_spot(work, 0.01)
    work.metric = next_token_accuracy
    assert not blind_spot(work, 0.01)


def test_masks_have_no_blind_spot_as_a_sample_has_several_values(work):
    work.metric = lambda predict, test: 1.0
    work.test = [(images(), torch.zeros(len(images()), 1))]
    assert blind_spot(work, 0.01)
    work.test = [(images(), torch.zeros(len(images()), 8, 8))]
    assert blind_spot(work, 0.01) == ""


def test_the_best_recipe_of_a_real_search_is_one_that_it_measured():
    work = lab.load("resnet18-tiny")
    found = lab.search(work, seconds=10, engines=("eager", "onnxruntime"))
    assert found.is_done and found.rows and found.skipped >= 0
    assert not found.best.steps or found.first.word == "faster"
    assert all(step.why for step in found.best.steps)
    if found.best.steps:
        assert lab.apply(work, found.best).recipe == found.best


def compared_with(**speedups: float) -> Any:
    """Replaces `compare`: a row for the recipe and for it without each step."""

    def compare(work: Workload, **given: Any) -> Any:
        names = [name for name in given if name == "whole" or name.startswith("without")]
        rows = [
            Measurement(name=name, threads=1, speedup=speedups[name.split()[-1]], size_bytes=100)
            for name in names
        ]
        return comparison_of(*rows, baseline="whole")

    return compare


def test_each_step_s_contribution_is_how_much_worse_the_recipe_is_without_it(work, monkeypatch):
    best = apply(work, Recipe(["fold", "layout", {"backend": {"name": "eager", "threads": 1}}]))
    options = {"rounds": 1, "seconds": 1e3, "should_stop": lambda: False}
    fake = compared_with(whole=3.0, **{"0": 2.0, "1": 3.0, "2": 1.5})
    monkeypatch.setattr(contributions, "compare", fake)
    assert contributions.contributions_of(work, best, "latency", **options) == (1.5, 1.0, 2.0)
    assert contributions.contributions_of(work, best, "size", **options) == (1.0, 1.0, 1.0)
    one = apply(work, Recipe(["fold"]))
    assert contributions.contributions_of(work, one, "latency", **options) == ()
    none = options | {"seconds": 0.0}
    assert contributions.contributions_of(work, best, "latency", **none) == ()

    def stopped(*given: Any, **named: Any) -> Any:
        raise StoppedError("stopped")

    monkeypatch.setattr(contributions, "compare", stopped)
    assert contributions.contributions_of(work, best, "latency", **options) == ()


def test_the_best_recipe_says_what_each_of_its_steps_contributes(work, tried):
    last = tried(work, BF16, goal="size", metric_drop=1.0)[-1]
    first = last.first
    assert len(first.contributions) == len(first.steps) == 2
    assert first.contributions[1] == pytest.approx(2, rel=0.5), "without bf16 twice the bytes"
    assert f"{first.contributions[1]:.2f} × the size" in last.best[1].why
    for text in (str(last), last._repr_html_()):
        assert f"{first.contributions[1]:.2f} × the size" in text and "Without a step" in text


def test_a_search_says_which_choice_explains_the_differences_and_when_each_was_measured(
    tried, work
):
    last = tried(work, FOLD, LAYOUT)[-1]
    assert all(row.at_s is not None and 0 < row.at_s <= last.took_s for row in last.rows)
    study = store.Study.open(
        None, {"workload": "a", "goal": "latency"}, {"engine": ("a", "b"), "threads": (0, 1)}
    )
    assert study.importance == {}
    for engine, threads_, value in [
        ("a", 0, 1.0),
        ("a", 1, 1.01),
        ("b", 0, 5.0),
        ("b", 1, 5.01),
    ] * 3:
        study.study.enqueue_trial({"engine": engine, "threads": threads_})
        trial, _ = study.ask()
        study.study.tell(trial, [value, 0.0])
    assert study.importance["engine"] > 0.8

    def full(*args: Any, **options: Any) -> Any:
        raise optuna.exceptions.StorageInternalError("disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optuna.importance.get_param_importances", full)
        assert study.importance == {}


def test_points_are_measured_in_another_order_that_sees_the_rows_so_far(work, tried, monkeypatch):
    seen: list[list[str]] = []

    def order(space: Space, rows: Any) -> Any:
        for point in (LAYOUT, BF16):
            seen.append([row.label for row in rows.values()])
            yield point

    seeds: list[int] = []
    opened = store.Study.open
    monkeypatch.setattr(
        searching.Study, "open", lambda *given: seeds.append(given[-1]) or opened(*given)
    )
    last = tried(work, FOLD, LAYOUT, BF16, order=order, metric_drop=1.0, seed=7)[-1]
    assert seeds == [7] and seen == [[], [LABELS[LAYOUT]]]
    assert {row.label for row in last.rows} == {LABELS[LAYOUT], LABELS[BF16]}
