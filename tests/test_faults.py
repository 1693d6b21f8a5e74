"""Writes that are killed, on a full disk or without memory lose nothing; `python -m benchmarks
faults` disturbs them a thousand times.
"""

from __future__ import annotations

import pytest

from benchmarks.fault_tasks import TASKS
from benchmarks.faults import FaultsBench
from tests.support.processes import ROOT, python

ALONE = {"added": {"OMP_NUM_THREADS": "1"}, "cwd": ROOT}

# These take seconds each time; their own tests kill them (tests/converter/test_delivery.py,
# tests/planner/test_studies.py, tests/cli/test_sweep.py).
SLOW = ("export", "search", "run", "sweep")


@pytest.mark.parametrize("task", [name for name in TASKS if name not in SLOW])
def test_a_disturbed_write_loses_nothing_and_the_next_run_goes_on(task, tmp_path):
    """In a process of its own, of which the disturbed ones are forks: this one has threads."""
    record = tmp_path / "faults.json"
    python("-m", "benchmarks", "faults", task, "--times", 4, "--json", record, **ALONE)
    rows = FaultsBench.load(record).rows
    assert [row.tried for row in rows] == [4, 4, 4]


HALF = """
from pathlib import Path
from benchmarks import fault_tasks
from benchmarks.faults import bench

class Half(fault_tasks.Task):
    name, share = "half", 0.5

    def write(self, folder):
        for _ in range(300):
            (folder / "file").write_text("whole" * 100)

    def check(self, folder):
        assert (folder / "file").read_text() == "whole" * 100, "half a file"

fault_tasks.TASKS["half"] = Half
record = bench(["half"], times=16)
assert {row.tried for row in record.rows} == {8}
print(record.summary)
assert not record.is_good
"""


def test_what_writes_in_place_is_seen_to_lose(tmp_path):
    assert "half a file" in python("-c", HALF, **ALONE).stdout
