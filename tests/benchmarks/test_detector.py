"""`benchmarks detector` trains in both ways on few scenes, and its page shows them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import detector
from benchmarks.detector import CHOSEN, PLAIN, DetectorBench, DetectorTraining
from benchmarks.measured import Records
from benchmarks.pages import block
from paifuser_lab.records import Record
from paifuser_lab.zoo.data import boxed_streets


@pytest.fixture
def measured(monkeypatch):
    few = partial(boxed_streets, train=2, test=4, batch=4)
    setup = replace(detector.SETUPS[detector.NAME], data=few)
    monkeypatch.setattr(detector, "SETUPS", {detector.NAME: setup})
    return detector.bench(epochs=1, seeds=2, batches=1)


def test_both_ways_are_trained_with_each_seed_the_first_alternating(measured, tmp_path):
    order = [(row.way, row.seed) for row in measured.trainings]
    assert order == [(PLAIN, 0), (CHOSEN, 0), (CHOSEN, 1), (PLAIN, 1)]
    assert measured.steps == 1 and all(row.seconds > 0 for row in measured.trainings)
    assert all(0 <= row.score <= 1 for row in measured.trainings)
    assert len(measured.ratios) == 2 and len(measured.table()) == 4
    assert Record.load(measured.save(tmp_path / "detector.json")) == measured


def test_the_page_has_a_row_a_way(tmp_path):
    rows = [(PLAIN, 0, 30.0, 0.5), (CHOSEN, 0, 20.0, 0.52), (CHOSEN, 1, 20.0, 0.5)]
    known = DetectorBench(
        machine="m",
        threads=1,
        epochs=1,
        steps=1800,
        trainings=tuple(
            DetectorTraining(way=way, seed=seed, seconds=seconds, score=score)
            for way, seed, seconds, score in rows
        ),
    )
    known.save(tmp_path / "detector.json")
    assert known.ratios == (1.5,) and "1.50 × as fast" in known.summary
    page = block("detector", Records(tmp_path))
    assert "| plain | 30 | 0.500 | 0.500 | – |" in page and "1.50 ×" in page
