"""The bench of ways of judging layers runs and gives a record; what it finds is never asserted."""

from __future__ import annotations

import pytest

from paifuser_lab.bench import sensitivity
from paifuser_lab.bench.sensitivity import SensitivityBench, bench
from paifuser_lab.loading import load

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_method_is_held_against_the_ablation_and_a_failure_does_not_end_it(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(sensitivity, "load", lambda name: load(name, trained=False) if "digits" in name else load(name))
    measured = bench(
        ("no-such-model", "resnet18-digits-tiny"), formats=("int4-weights",), methods=("fisher", "ablation"), batches=2
    )
    assert "no-such-model" in measured.failures
    fisher, ablation = measured.table()
    assert fisher["method"] == "fisher" and -1 <= float(fisher["int4-weights"]) <= 1
    assert ablation["int4-weights"] == "–" and float(ablation["seconds"]) > 0
    assert "resnet18-digits-tiny: fisher" in measured.summary
    assert SensitivityBench.load(measured.save(tmp_path / "bench.json")) == measured
