"""`benchmarks formats` trains every way for the same time, and its page says what was chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import formats
from benchmarks.formats import AUTOCAST, FormatsBench, FormatsRow
from benchmarks.formats import FormatTraining as Training
from benchmarks.measured import Records
from benchmarks.pages import block
from paifuser_lab.measure import Samples
from paifuser_lab.planner.training import formats as planning
from paifuser_lab.planner.training import plan_training_formats
from paifuser_lab.planner.training.formats import BY_LAYER, FP32
from paifuser_lab.records import LayerTrainingFormat, Record, TrainingFormats
from paifuser_lab.zoo import data
from paifuser_lab.zoo.trained import SETUPS

NAME = "resnet18-digits-tiny"


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        train, test = data.digits(batch=8, side=8)
        patch.setitem(SETUPS, NAME, replace(SETUPS[NAME], data=lambda: (train[:3], test[:2])))
        brief = partial(plan_training_formats, seconds=0.2, budget=1e9)
        patch.setattr(formats, "plan_training_formats", brief)
        # the clock decides neither which formats are chosen nor whether they stay
        patch.setattr(planning, "_chosen", lambda ms, *_: dict.fromkeys(list(ms)[:2], "bf16"))
        patch.setattr(planning, "_best", lambda steps, budget: steps[-1])
        ms = dict(zip((FP32, AUTOCAST, BY_LAYER), (10.0, 5.0, 20.0), strict=True))
        patch.setattr(
            formats, "raced_steps", lambda *_: {way: Samples([each]) for way, each in ms.items()}
        )
        yield formats.bench((NAME,), seconds=0.1, seeds=2, race_s=0.2)


def test_each_way_takes_the_steps_that_fit_into_the_time_of_fp32(measured, tmp_path):
    assert not measured.failures
    (row,) = measured.rows
    assert list(row.ratios) == [FP32, AUTOCAST, BY_LAYER] and row.ratios[FP32] == 1
    assert {(one.way, one.seed) for one in row.trainings} == {
        (way, seed) for way in row.ratios for seed in (0, 1)
    }
    steps = {way: {one.steps for one in row.of(way)} for way in row.ratios}
    assert steps == {FP32: {10}, AUTOCAST: {20}, BY_LAYER: {5}}  # of 10, 5 and 20 ms in 0.1 s
    assert all(one.seconds > 0 and 0 <= one.score <= 1 for one in row.trainings)
    assert row.plan.rows and row.plan_s > 0 and row.metric == "accuracy"
    assert len(row.chosen_gains) == 2
    assert len(measured.table()) == 3 and NAME in measured.summary
    assert Record.load(measured.save(tmp_path / "formats.json")) == measured


def row_of(plan: TrainingFormats, scores: dict[str, tuple[float, ...]]) -> FormatsRow:
    return FormatsRow(
        model=NAME,
        metric="accuracy",
        plan=plan,
        plan_s=12.4,
        ratios={FP32: 1.0, AUTOCAST: 1.5, BY_LAYER: 1.6},
        intervals={FP32: (1.0, 1.0), AUTOCAST: (1.4, 1.6), BY_LAYER: (1.5, 1.7)},
        trainings=tuple(
            Training(way=way, seed=seed, steps=1200, seconds=20.0, loss=0.5, score=score)
            for way, known in scores.items()
            for seed, score in enumerate(known)
        ),
    )


def layers(*names: str) -> tuple[LayerTrainingFormat, ...]:
    return tuple(
        LayerTrainingFormat(layer=str(index), kind="Linear", format=name)
        for index, name in enumerate(names)
    )


def test_the_page_says_what_was_chosen_and_whether_its_metric_is_higher_with_each_seed(tmp_path):
    plan = TrainingFormats(
        workload=NAME,
        machine="m",
        budget=0.1,
        loss=1.0,
        way=BY_LAYER,
        formats={"0": "bf16"},
        rows=layers("bf16", "fp32", "fp32"),
    )
    higher = row_of(plan, {AUTOCAST: (0.8, 0.9), BY_LAYER: (0.81, 0.93)})
    mixed = row_of(plan, {AUTOCAST: (0.8, 0.9), BY_LAYER: (0.81, 0.85)})
    lower = row_of(plan, {AUTOCAST: (0.8, 0.9), BY_LAYER: (0.7, 0.88)})
    same = row_of(
        plan.model_copy(update={"way": AUTOCAST, "rows": layers("bf16")}), {AUTOCAST: (0.8, 0.9)}
    )
    plain = row_of(
        plan.model_copy(update={"way": FP32, "rows": layers("fp32")}),
        {FP32: (0.9, 1.0), AUTOCAST: (0.8, 0.9)},
    )
    assert same.chosen_gains == []
    assert higher.chosen_gains == pytest.approx([0.01, 0.03])
    known = FormatsBench(machine="m", seconds=20, rows=(higher, mixed, lower, same, plain))
    known.save(tmp_path / "formats.json")
    page = block("formats", Records(tmp_path))
    row = "1.60 (1.50–1.70) | 1,200 | 20 | 0.5 | 0.870 (0.810–0.930) |"
    assert row in page and "| fp32 | – | – | – | – | – |" in page
    flat = " ".join(page.split())
    assert "of 3 layers 2 in fp32 and 1 in bf16, chosen in 12 s. With every seed the" in flat
    assert "the metric is higher than autocast's, by +0.020 on average." in flat
    assert "the metric is lower than autocast's, by −0.060 on average." in flat
    assert "The metric is autocast's −0.020 on average, higher with some seeds only." in flat
    assert "1 in bf16, chosen in 12 s: autocast is the fastest way within the budget" in flat
    assert "as no way within the budget of loss is certainly faster than fp32. With every" in flat
