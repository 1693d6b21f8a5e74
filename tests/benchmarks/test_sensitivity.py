"""The benchmark of sensitivity methods returns a record; its results are never asserted."""

from __future__ import annotations

import pytest

from benchmarks import hessian_peer, sensitivity
from benchmarks.sensitivity import SensitivityBench, bench
from paifuser_lab.errors import MissingExtraError
from paifuser_lab.variant.load import load

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_method_is_compared_with_the_ablation_and_a_failure_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setattr(
        sensitivity,
        "load",
        lambda name: load(name, trained=False) if "digits" in name else load(name),
    )
    measured = bench(
        ("no-such-model", "resnet18-digits-tiny"),
        formats=("int4-weights",),
        methods=("fisher", "ablation"),
        batches=2,
    )
    assert "no-such-model" in measured.failures
    assert measured.summary.startswith("no-such-model: ")
    fisher, ablation = measured.table()
    assert fisher["method"] == "fisher" and -1 <= float(fisher["int4-weights"]) <= 1
    assert ablation["int4-weights"] == "–" and float(ablation["seconds"]) > 0
    assert "resnet18-digits-tiny: fisher" in measured.summary
    assert SensitivityBench.load(measured.save(tmp_path / "bench.json")) == measured


class FakeHessian:
    """A fake of PyHessian's class: its probes have a mean of 1, and it records the parameters."""

    calls: list[list[str]] = []

    def __init__(self, model, criterion, data, cuda):
        self.calls.append(
            [name for name, weight in model.named_parameters() if weight.requires_grad]
        )

    def trace(self, maxIter, tol):
        return [0.5, 1.5] * (maxIter // 2)


def test_the_peer_runs_layer_by_layer_with_as_many_probes_as_our_error_requires(monkeypatch):
    monkeypatch.setattr(hessian_peer, "load", lambda name: load(name, trained=False))
    monkeypatch.setattr(hessian_peer, "_pyhessian", lambda: FakeHessian)
    monkeypatch.setattr(hessian_peer, "ERROR", 2.0)
    traced = hessian_peer.bench(("resnet18-digits-tiny",)).models[0]
    assert traced.layers == 21
    assert FakeHessian.calls == [[f"{name}.weight"] for name in _layers()]
    assert (
        traced.peer_probes >= 2 * traced.layers and traced.our_seconds > 0 and traced.furthest > 0
    )


def _layers() -> list[str]:
    model = load("resnet18-digits-tiny", trained=False).model
    return [
        name
        for name, layer in model.named_modules()
        if type(layer).__name__ in ("Conv2d", "Linear")
    ]


def test_without_the_peer_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyhessian", None)
    with pytest.raises(MissingExtraError, match="peers"):
        hessian_peer._pyhessian()
