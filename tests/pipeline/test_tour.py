"""In the tour, run by papermill, the workbench, a comparison and the plan measure one baseline."""

from __future__ import annotations

import os
from itertools import combinations

import nbformat
import pytest

import paifuser_lab as lab
from paifuser_lab._files import asset
from paifuser_lab.pipeline.notebook import run_notebook
from paifuser_lab.records.quality import MAX_SLEEPS

# Two threads, so that a second pool would show; by itself the tour may choose one.
CHOOSE = "\nfrom paifuser_lab.measure import choose_threads\nchoose_threads(work, 2)"
SAVE = """
named = {"header": bench.comparison, "compare": comparison, "plan": planned.evidence}
for name, measured in named.items():
    measured.save(f"{out}/{name}.json")
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The three comparisons of one run; threads that wait spin, however busy the machine is."""
    tour = nbformat.read(asset("notebooks/00_tour.ipynb"), as_version=4)
    load = next(cell for cell in tour.cells if "work = lab.load" in cell.source)
    load.source += CHOOSE
    tour.cells.append(nbformat.v4.new_code_cell(SAVE))
    folder = tmp_path_factory.mktemp("tour")
    nbformat.write(tour, folder / "tour.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setenv("OMP_WAIT_POLICY", "active")
        out = run_notebook(folder / "tour.ipynb", folder / "out", {"rounds": 5, "seconds": 1.0})
    names = ("header", "compare", "plan")
    return {name: lab.Comparison.load(out / f"{name}.json") for name in names}


pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 if hasattr(os, "sched_getaffinity") else True,
    reason="two threads need two cores, on Linux",
)


def test_no_second_pool_of_threads_is_in_the_way(measured):
    sleeps = {name: one.quality.sleeps for name, one in measured.items()}
    assert all(count <= MAX_SLEEPS for count in sleeps.values()), sleeps


def test_the_header_a_comparison_and_the_plan_agree_on_the_baseline(measured):
    """Whatever slowed single rounds: from the best call to the upper quarter they overlap."""
    rows = {name: one[one.baseline] for name, one in measured.items()}
    ranges = {name: (row.best_ms, row.spread_ms[1]) for name, row in rows.items()}
    for first, second in combinations(ranges.values(), 2):
        assert max(first[0], second[0]) <= min(first[1], second[1]), ranges
