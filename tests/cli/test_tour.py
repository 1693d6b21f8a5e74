"""In the tour, run by papermill, the workbench, a comparison and the plan measure one baseline."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import nbformat
import pytest

import paifuser_lab as lab
from paifuser_lab._files import asset
from paifuser_lab.cli.notebook import run_notebook
from paifuser_lab.records.quality import MAX_SLEEPS

# The cells that lead to a baseline. Engines are of no matter to one, and take long to build.
KEPT = (
    "parameters",
    "work = lab.load",
    "recipe = ",
    "variant = ",
    "comparison = lab.compare",
    "bench = ",
    "planned = ",
)
ENGINES = ', engines=("eager", "onnxruntime", "openvino")'
pytestmark = pytest.mark.timeout(900)  # a kernel of its own, six measurements
REAL = "mobilenetv2-imagenet"
SAVE = """
named = {"header": bench.comparison, "compare": comparison, "plan": planned.evidence}
for name, measured in named.items():
    measured.save(f"{out}/{name}.json")
"""


def is_kept(cell):
    text = " ".join(cell.metadata.get("tags", [])) + cell.source
    return cell.cell_type == "code" and any(word in text for word in KEPT)


@pytest.mark.parametrize(
    ("names", "model", "loaded", "score", "is_less_better", "said"),
    [
        (("resnet18",), "", "resnet18-digits", 0.997, False, "accuracy on the test data: 99.7%"),
        (("resnet18",), "", "resnet18-digits", 3.5, False, "accuracy on the test data: 3.5\n"),
        (("resnet18",), "", "resnet18-digits", 0.25, True, "accuracy on the test data: 0.25\n"),
        (("resnet18", REAL), "", REAL, 1.0, False, "accuracy on the test data: 100.0%"),
        ((REAL,), "vit-s", "vit-s", None, False, "no metric on test data"),
    ],
)
def test_the_tour_is_about_a_real_network_if_its_package_is_installed(
    names, model, loaded, score, is_less_better, said, monkeypatch, capsys
):
    tour = nbformat.read(asset("notebooks/00_tour.ipynb"), as_version=4)
    (load,) = (cell.source for cell in tour.cells if "work = lab.load" in cell.source)
    monkeypatch.setattr(lab, "models", lambda: names)
    facts = {"metric_name": score and "accuracy", "evaluate": lambda: score}
    facts["smaller_is_better"] = is_less_better
    monkeypatch.setattr(lab, "load", lambda name, **options: SimpleNamespace(name=name, **facts))
    given = {"model": model, "trust": False}
    exec(load, given)
    assert given["work"].name == loaded
    assert capsys.readouterr().out.startswith(said)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The three comparisons of one run."""
    tour = nbformat.read(asset("notebooks/00_tour.ipynb"), as_version=4)
    tour.cells = [cell for cell in tour.cells if is_kept(cell)]
    plan = tour.cells[-1]
    assert ENGINES in plan.source
    plan.source = plan.source.replace(ENGINES, ', engines=("eager",)')
    tour.cells.append(nbformat.v4.new_code_cell(SAVE))
    folder = tmp_path_factory.mktemp("tour")
    nbformat.write(tour, folder / "tour.ipynb")
    out = run_notebook(folder / "tour.ipynb", folder / "out", {"rounds": 5, "seconds": 1.0})
    names = ("header", "compare", "plan")
    return {name: lab.Comparison.load(out / f"{name}.json") for name in names}


def test_the_header_a_comparison_and_the_plan_agree_on_the_baseline(measured):
    """No second OpenMP pool ran beside any. On a quiet machine, whatever slowed single rounds, they
    also overlap from the best call to the upper quarter.
    """
    qualities = {name: one.quality for name, one in measured.items()}
    assert all((quality.sleeps or 0.0) < MAX_SLEEPS for quality in qualities.values()), qualities
    rows = {name: one[one.baseline] for name, one in measured.items()}
    ranges = {name: (row.best_ms, row.spread_ms[1]) for name, row in rows.items()}
    quiet = [ranges[name] for name, quality in qualities.items() if quality.is_quiet]
    for first, second in combinations(quiet, 2):
        assert max(first[0], second[0]) <= min(first[1], second[1]), ranges
