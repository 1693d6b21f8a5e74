"""A variant as one page to send."""

from __future__ import annotations

import re

import pytest

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import MeasureError
from paifuser_lab.views.report import report_page
from tests.support.models import Small, images


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload(Small(), images(2), name="<b>small</b>")


def test_a_variant_is_measured_and_written_as_one_page_that_runs_nothing(work, tmp_path):
    variant = lab.apply(work, Recipe(["fold", {"backend": "replay"}]))
    path = lab.report(work, variant, tmp_path / "small.html", seconds=1)
    page = path.read_text()
    assert f"{variant.recipe.label}</h1>" in page and "backend:" in page
    assert page.count("<svg") == 3, "the comparison, the layers and the graph"
    for layer in ("conv", "head"):
        assert layer in page
    assert "<b>small</b>" not in page and "&lt;b&gt;small" in page
    assert not re.search(r"<script|https?://(?!www\.w3\.org)", page)


def test_what_a_refused_variant_brings_is_why_it_is_refused(work):
    variant = lab.apply(work, Recipe(["fold"]))
    compared = lab.compare(work, variant, seconds=0.2)
    known = {"refused": "it is <wrong>", "peak_bytes": None, "latency_ms": 1234.4}
    row = compared.rows[-1].model_copy(update=known)
    refused = compared.model_copy(update={"rows": (*compared.rows[:-1], row)})
    page = report_page(refused, variant.recipe, work.graph())
    assert "<p>it is &lt;wrong&gt; <span" in page and "peak memory" not in page
    assert "→ 1234 ms" in page


def test_a_workbench_writes_the_page_of_its_recipe_once_that_is_measured(work, tmp_path):
    bench = lab.Workbench(work, rounds=3, seconds=0.3)
    with pytest.raises(MeasureError, match="not measured yet"):
        bench.report(tmp_path / "early.html")
    bench.recipe += "fold"
    bench.open()
    bench.wait()
    page = bench.report(tmp_path / "bench.html").read_text()
    assert "fold batch-norm" in page and "Layer by layer" in page
    assert "lab.apply(work" in page and "lab.load(" not in page, "no name loads one's own model"
    assert not (tmp_path / "early.html").exists()
    bench.close()
