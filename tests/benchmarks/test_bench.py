"""Benchmarks run and return a record; no time is ever asserted."""

from __future__ import annotations

import pytest

from benchmarks import profile
from benchmarks.profile import ProfileBench
from benchmarks.profile import bench as bench_profile
from paifuser_lab.bench import by_hand, models
from paifuser_lab.bench.models import ModelsBench, bench


@pytest.fixture
def without_compiling(monkeypatch):
    """Replace Inductor, which takes seconds to compile, by ONNX Runtime and by eager; the plan
    follows from the hardware's figures.
    """
    monkeypatch.setattr(models, "_options", lambda: [{"name": "onnxruntime", "threads": 1}])
    monkeypatch.setattr(by_hand, "_inductor", lambda model, inputs, count: lambda: inputs(model))
    plan = models.plan
    monkeypatch.setattr(
        models,
        "plan",
        lambda work, seconds: plan(work, seconds=0, engines=("eager", "onnxruntime")),
    )


def test_the_models_bench_compares_the_plan_with_the_engines_by_hand(without_compiling, tmp_path):
    measured = bench(("resnet18-tiny", "no-such-model"), seconds=0.5, by_hand=True)
    assert "no-such-model" in measured.failures
    hand = measured.by_hand["resnet18-tiny"]
    assert hand.interval[0] <= hand.ratio <= hand.interval[1]
    assert {"plan", "by hand: onnxruntime · 1", "by hand: openvino · 1"} <= set(hand.all_ms)
    (row,) = measured.table()
    assert row["model"] == "resnet18-tiny"
    assert row["`lab.plan` chose"] == hand.plan and row["against the best by hand"]
    assert ModelsBench.load(measured.save(tmp_path / "bench.json")) == measured


def test_the_profile_bench_counts_as_torch_does_and_continues_after_a_failure(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(profile, "LAYERS", 20)
    measured = bench_profile(("resnet18-tiny", "no-such-model"))
    assert "no-such-model" in measured.failures
    (row,) = measured.rows
    assert row.flops == row.torch_flops and row.layers == 81 and row.rows_to_latency > 0
    assert row.all_flops - row.torch_flops == sum(row.beyond_torch.values()) > 0
    assert "20 tiny layers" in measured.summary
    assert ProfileBench.load(measured.save(tmp_path / "bench.json")) == measured
