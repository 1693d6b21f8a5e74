"""One measurement after another: failures are recorded, and a stop keeps the results."""

from __future__ import annotations

import pytest

from benchmarks import checkpoints, formats, parallel, peers, search, train
from paifuser_lab.bench.runner import INTERRUPTED, measure_each
from paifuser_lab.errors import MeasureError, StoppedError


def test_a_failure_is_recorded_by_its_first_line_and_the_next_is_measured():
    measured = []

    def measure(name):
        if name == "b":
            raise MeasureError("b cannot be measured.\nand more")
        measured.append(name)

    assert measure_each(("a", "b", "c"), measure) == {"b": "b cannot be measured."}
    assert measured == ["a", "c"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), StoppedError("was stopped.")])
def test_a_stop_ends_the_measuring_and_is_recorded(stop):
    measured = []

    def measure(name):
        if name == "b":
            raise stop
        measured.append(name)

    assert list(measure_each(("a", "b", "c"), measure)) == [INTERRUPTED]
    assert measured == ["a"]


@pytest.mark.parametrize(
    ("bench", "known"),
    [
        (checkpoints.bench, "seed-cnn, "),
        (formats.bench, "resnet18-d"),
        (lambda names: parallel.bench(*names), "cnn, vit"),
        (peers.bench, "models, "),
        (search.bench, "resnet18-d"),
        (train.bench, "seed-cnn, "),
    ],
)
def test_a_name_that_a_bench_does_not_know_is_refused_with_those_it_knows(bench, known):
    with pytest.raises(MeasureError, match=f"'resnet99' is not trained here; there are {known}"):
        bench(("resnet99",))


def test_an_error_of_the_program_is_not_recorded():
    with pytest.raises(ZeroDivisionError):
        measure_each(("a",), lambda name: 1 // 0)
