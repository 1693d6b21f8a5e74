"""What a run of the tests skipped is named at its end, with how to have it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.processes import ROOT, python
from tests.support.skipped import gather, lines


def test_each_reason_has_one_line_with_the_way_to_have_its_tests():
    assert lines(
        {
            "tests/a.py::test_a": "Skipped: openvino is not installed",
            "tests/b.py::test_a": "Skipped: there is no Chromium on this machine",
            "tests/b.py::test_b": "Skipped: there is no Chromium on this machine",
            "tests/c.py": "Skipped: could not import 'ray': No module named 'ray'",
            "tests/d.py": "Skipped: could not import 'ray': No module named 'ray.serve'",
            "tests/d.py::test_a": "Skipped: could not import 'ray': No module named 'ray'",
            "tests/e.py::test_a": "Skipped: this PyAV has no libx264.",
        }
    ) == [
        "skipped 1 test and 2 whole files: could not import 'ray'; "
        "`make install` has every package",
        "skipped 2 tests: there is no Chromium on this machine; install chromium or google-chrome",
        "skipped 1 test: openvino is not installed; `make install` has every package",
        "skipped 1 test: this PyAV has no libx264",
    ]


def test_a_run_adds_to_what_earlier_runs_skipped(tmp_path: Path):
    file = tmp_path / "out" / "skipped.json"
    gather({"tests/a.py::test_a": "one"}, file)
    assert gather({"tests/b.py::test_a": "two"}, file) == {
        "tests/a.py::test_a": "one",
        "tests/b.py::test_a": "two",
    }
    assert gather({"tests/b.py::test_a": "two"}, None) == {"tests/b.py::test_a": "two"}


def test_browser_tests_without_chromium_are_named_at_the_end_of_the_run(tmp_path: Path):
    environment = {key: value for key, value in os.environ.items() if key != "PAIFUSER_REQUIRE"}
    environment |= {"PATH": str(tmp_path), "CHROMIUM": ""}
    words = ["-m", "pytest", "-p", "no:cacheprovider", "tests/browser/test_journey.py"]
    ran = python(*words, cwd=ROOT, env=environment)
    assert "there is no Chromium on this machine; install chromium" in ran.stdout
