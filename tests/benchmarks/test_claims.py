"""Each headline of another system stands beside the records of the nearest work."""

from __future__ import annotations

import re
import shutil

import pytest

from benchmarks.claims import CLAIMS, MEASURED, claims_of
from benchmarks.detector import DetectorBench, DetectorTraining
from benchmarks.experiment import Experiment
from benchmarks.measured import COMMANDS
from paifuser_lab.records import AttentionCost


def row_of(claim, folder):
    (row,) = [row for row in claims_of(folder).rows if row.claim == claim]
    return row


def test_without_records_each_claim_says_what_would_measure_it(tmp_path):
    rows = claims_of(tmp_path).rows
    assert [row.claim for row in rows if row.claim] == [claim.says for claim in CLAIMS]
    assert {row.figures for row in rows} == {"not measured yet"}
    assert {row.command for row in rows} <= set(COMMANDS.values())
    assert {row.verdict for row in rows} == {"–", "needs a GPU", "needs 16 machines"}


def test_the_figures_of_each_record_that_there_is_are_shown():
    rows = claims_of(MEASURED).rows
    names = [name for claim in CLAIMS for name in claim.records]
    for name, row in zip(names, rows, strict=True):
        is_there = (MEASURED / f"{name}.json").is_file()
        assert is_there == (row.figures != "not measured yet"), name
        assert bool(re.search(r"\d", row.figures)) == is_there == (row.on != "–"), name
        assert row.verdict != ("–" if is_there else "")


@pytest.mark.parametrize(
    ("seconds", "score", "verdict"),
    [
        ((10.0, 10.0), 0.4, "met"),
        ((10.0, 20.0), 0.4, "met by 1 of 2"),
        ((20.0, 20.0), 0.4, "not met"),
        ((10.0, 10.0), 0.3, "not met"),
    ],
)
def test_a_detector_has_to_be_faster_in_each_seed_and_no_worse(tmp_path, seconds, score, verdict):
    trained = lambda way, seed, seconds, score: DetectorTraining(
        way=way, seed=seed, seconds=seconds, score=score
    )
    trainings = [trained("plain", seed, 25.0, 0.4) for seed in range(2)]
    trainings += [trained("enable()", seed, took, score) for seed, took in enumerate(seconds)]
    record = DetectorBench(machine="here", threads=1, epochs=1, steps=1, trainings=trainings)
    record.save(tmp_path / "detector.json")
    row = row_of("a detector trains 2.3 × faster at equal mAP", tmp_path)
    assert row.verdict == verdict
    assert row.on == "here, date and commit not recorded"


def test_sparse_attention_has_to_be_faster_with_a_tenth_of_the_keys(tmp_path):
    cost = AttentionCost(
        workload="net", machine="here", kind="topk", keeps=(0.1,), errors=(0.2,),
        latency_ms=(4.0,), dense_ms=8.0, metric="iou", values=(0.895,), dense_value=0.9,
    )  # fmt: skip
    slower = cost.model_copy(update={"workload": "other", "latency_ms": (9.0,)})
    Experiment(name="attention", machine="here", attention=(cost, slower)).save(
        tmp_path / "attention.json"
    )
    row = row_of("90 % less attention computing", tmp_path)
    assert row.verdict == "met by 1 of 2" and "2.00 × as fast" in row.figures


def test_storage_is_compared_in_whole_percents(tmp_path):
    shutil.copy(MEASURED / "allocation.json", tmp_path)
    row = row_of("−75 % storage by int8", tmp_path)
    assert (row.figures, row.verdict) == ("−74.8 %", "met")
