"""One measurement after another: failures are recorded, and a stop keeps the results."""

from __future__ import annotations

import pytest

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


def test_an_error_of_the_program_is_not_recorded():
    with pytest.raises(ZeroDivisionError):
        measure_each(("a",), lambda name: 1 // 0)
