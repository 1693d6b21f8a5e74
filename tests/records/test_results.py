"""Everything tried in a session, as a record: verdicts, the frontier, and two rows compared."""

from __future__ import annotations

import math

import pytest

from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Quality, Record, ResultRow, Results

FOLD, ORT, INT8 = {"fold": {}}, {"backend": {"name": "onnxruntime"}}, {"precision": {"x": "int8"}}


def row(number, ms=10.0, interval=None, steps=(), **more):
    labels = tuple(next(iter(step)) for step in steps)
    ratio = math.sqrt(interval[0] * interval[1]) if interval else None
    return ResultRow(
        number=number, label=" → ".join(labels), steps=tuple(steps), step_labels=labels,
        latency_ms=ms, before_ms=10.0, speedup=ratio, speedup_interval=interval, **more,
    )  # fmt: skip


@pytest.fixture
def results():
    rows = (
        row(0, metric=0.9),
        row(1, 9.8, (0.97, 1.06), [FOLD], metric=0.9),
        row(2, 5.0, (1.9, 2.1), [FOLD, ORT], metric=0.9),
        row(3, 4.0, (2.3, 2.7), [FOLD, ORT, INT8], metric=0.85, has_profile=True),
        row(4, 8.0, (1.2, 1.3), [INT8], metric=0.8),
        row(5, 2.0, (4.5, 5.5), [ORT], metric=0.2, refused="accuracy fell by 70 points"),
        ResultRow(number=6, label="broken", failure="no such layer"),
        row(7, 5.0, (1.9, 2.1), [ORT, INT8], metric=0.9, quality=Quality(others_share=0.6)),
    )
    return Results(workload="net", machine="here", metric_name="accuracy", current=3, rows=rows)


def test_a_verdict_is_given_only_where_interval_and_machine_allow_it(results):
    words = [row.verdict.word for row in results.rows]
    assert words == [
        "", "no difference", "faster", "faster", "faster", "faster", "", "faster"
    ]  # fmt: skip
    assert results[2].verdict.sentence == "10.0 → 5.01 ms · 2.00 × faster · likely 1.90–2.10"
    assert results[7].verdict.sentence == "10.0 → 5.01 ms · ≈ 2.00 × faster · likely 1.90–2.10"
    low, high = results[2].likely_ms
    assert low < 5.0 < high and results[0].likely_ms is None


def test_the_frontier_has_what_nothing_beats_within_the_limits(results):
    assert results.frontier == (3, 2)
    assert results.trade_off.unit == "accuracy"


def test_without_a_metric_the_closeness_of_the_output_counts():
    rows = (row(0), row(1, 5.0, (1.9, 2.1), [FOLD], relative_error=0.25))
    results = Results(workload="net", machine="here", rows=rows)
    assert [results.worth(row) for row in rows] == [1.0, 0.75]
    assert results.trade_off.unit == "closeness" and results.frontier == (1, 0)


def test_two_rows_are_compared_through_the_baseline_that_both_were_timed_with(results):
    pair = results.pair(2, 3)
    assert pair.speedup == pytest.approx(results[3].speedup / results[2].speedup)
    low, high = pair.speedup_interval
    widest = 2.3 / 2.1, 2.7 / 1.9  # if both doubts were at their worst at once
    assert widest[0] < low < pair.speedup < high < widest[1]
    assert pair.verdict.word == "faster" and pair.difference == "Only B has precision."
    back = results.pair(3, 2)
    assert back.speedup_interval[0] == pytest.approx(1 / high) and back.verdict.word == "slower"
    assert results.pair(0, 2).speedup_interval == pytest.approx((1.9, 2.1))


def test_a_pair_on_a_busy_machine_or_without_a_latency_has_no_verdict(results):
    assert results.pair(2, 7).verdict.word == "not told"
    assert results.pair(2, 6).speedup is None and results.pair(2, 6).verdict.word == ""
    assert results.pair(2, 2).difference == "Both have the same steps."
    assert results.pair(1, 4).difference == "Only A has fold; only B has precision."


def test_a_step_counts_as_often_as_it_is_there_and_without_its_remark():
    explained = {"fold": {"why": "it is exact"}}
    lists = [], [FOLD, ORT], [explained, ORT], [FOLD, ORT, FOLD], [ORT, FOLD]
    rows = tuple(row(number, steps=steps) for number, steps in enumerate(lists))
    results = Results(workload="net", machine="here", rows=rows)
    assert results.pair(1, 2).difference == "Both have the same steps."
    assert results.pair(1, 3).difference == "Only B has fold."
    assert results.pair(1, 4).difference == "Both have the same steps, in another order."
    assert results.short_label(results[3]) == "2 + fold"


def test_a_label_is_what_was_added_to_an_earlier_row(results):
    labels = [results.short_label(row) for row in results.rows]
    assert labels[1:5] == ["fold", "1 + backend", "2 + precision", "precision"]
    assert labels[7] == "5 + precision"


def test_it_is_a_table_a_frame_and_a_file(results, tmp_path):
    text = str(results)
    assert "refused: accuracy fell by 70 points" in text and "no such layer" in text
    assert "≈ 2.00 × (1.90–2.10)" in text and "net on here · 7 tried" in text
    frame = results.frame
    assert list(frame.index) == list(range(8)) and frame.loc[3, "is_current"]
    assert frame.loc[7, "verdict"] == "faster" and frame.loc[2, "latency_ms"] == 5.0
    assert Record.load(results.save(tmp_path / "results.json")) == results
    with pytest.raises(MeasureError, match="no result 9; there are 0, 1"):
        results[9]
    many = Results(workload="net", machine="here", rows=tuple(map(row, range(3, 15))))
    with pytest.raises(MeasureError, match="no result 1; there are 12 from 3 to 14"):
        many[1]
    with pytest.raises(MeasureError, match="Nothing was measured"):
        Results(workload="net", machine="here").trade_off  # noqa: B018


def test_a_row_whose_metric_was_not_measured_leaves_the_others_their_metric(results):
    stopped = row(9, 3.0, (3.0, 3.5), [INT8])
    some = results.model_copy(update={"rows": (*results.rows, stopped)})
    assert some.worth(stopped) is None and some.worth(some[1]) == 0.9
    assert some.trade_off.unit == results.trade_off.unit
    assert [bargain.name for bargain in some.trade_off.bargains] == [
        bargain.name for bargain in results.trade_off.bargains
    ]
    assert some.frontier == results.frontier


@pytest.mark.parametrize("metric", [math.nan, math.inf])
def test_a_row_whose_metric_is_not_finite_is_no_part_of_the_frontier(results, metric):
    bad = row(9, 1.0, (9.0, 11.0), [INT8], metric=metric)
    some = results.model_copy(update={"rows": (*results.rows, bad)})
    assert some.worth(bad) is None and some.trade_off.bargains == results.trade_off.bargains
    assert some.frontier == results.frontier
    alone = Results(workload="net", machine="here", rows=(row(0, relative_error=metric),))
    assert alone.frontier == ()
