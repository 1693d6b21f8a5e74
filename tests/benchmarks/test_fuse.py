"""The benchmark of fused layers, on a small model."""

from __future__ import annotations

import torch

from benchmarks import fuse
from benchmarks.fuse import FuseBench
from paifuser_lab.records import Record
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload
from paifuser_lab.zoo.swin import Swin


def swin(name, **options):
    """One stage of two blocks; other names are the zoo's."""
    if name != "swin":
        return load(name, **options)
    model = Swin(side=56, width=32, depths=(2,), heads=(1,), window=7, classes=3)
    return Workload(model.eval(), torch.randn(1, 3, 56, 56), name=name)


def test_each_model_is_timed_with_each_recipe_and_failures_are_named(
    always_quicker, monkeypatch, tmp_path
):
    monkeypatch.setattr(fuse, "load", swin)
    monkeypatch.setattr(fuse, "available_engines", lambda: ("eager",))
    measured = fuse.bench(("swin", "no-such-model"), batch=1, seconds=0.1)
    assert [comparison.workload for comparison in measured.comparisons] == ["swin"]
    assert "no-such-model" in measured.summary
    names = [row.name for row in measured.comparisons[0].rows]
    folded = "fold batch-norm → channels last"
    attending = "attention in windows"
    fused = ["fuse", f"{folded} → fuse", f"{attending} → fuse"]
    expected = [folded, attending, *fused, *(f"{name} → replay" for name in fused)]
    assert set(names[-8:]) == set(expected)
    assert 0 <= measured.errors[0] < 1e-4
    (first,) = measured.table()
    assert "`fuse`: " in first["with `fuse`"] and " × " in first["and replayed"]
    assert first["Inductor, frozen"] == first["against Inductor"] == "–"
    assert Record.load(measured.save(tmp_path / "fuse.json")) == measured
    assert FuseBench(machine="none").table() == [{"model": "nothing was measured"}]
