"""The benchmark of fused layers, on small models."""

from __future__ import annotations

from benchmarks import fuse
from benchmarks.fuse import FuseBench
from paifuser_lab.records import Record


def test_each_model_is_timed_with_each_recipe_and_failures_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(fuse, "available_engines", lambda: ("eager",))
    measured = fuse.bench(("swin-t-tiny", "no-such-model"), batch=1, seconds=0.5)
    names = [comparison.workload for comparison in measured.comparisons]
    assert names == ["swin-t-tiny"]
    assert "no-such-model" in measured.summary
    swin = [row.name for row in measured.comparisons[0].rows]
    folded = "fold batch-norm → channels last"
    attending = "attention in windows"
    fused = ["fuse", f"{folded} → fuse", f"{attending} → fuse"]
    expected = [folded, attending, *fused, *(f"{name} → replay" for name in fused)]
    assert set(swin[-8:]) == set(expected)
    assert 0 <= measured.errors[0] < 1e-4
    (first,) = measured.table()
    assert "`fuse`: " in first["with `fuse`"] and " × " in first["and replayed"]
    assert first["Inductor, frozen"] == first["against Inductor"] == "–"
    assert Record.load(measured.save(tmp_path / "fuse.json")) == measured
    assert FuseBench(machine="none").table() == [{"model": "nothing was measured"}]
