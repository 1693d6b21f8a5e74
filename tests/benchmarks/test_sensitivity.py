"""The benchmark of sensitivity methods returns a record; its results are never asserted."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from benchmarks import hessian_peer, sensitivity
from benchmarks.sensitivity import SensitivityBench, bench
from paifuser_lab.errors import MissingExtraError
from paifuser_lab.variant.load import load
from paifuser_lab.workload import Workload

pytestmark = pytest.mark.usefixtures("one_thread")


def small(name):
    """Three linear layers with data; other names are the zoo's."""
    if name != "small":
        return load(name)
    sizes = ((64, 64), (64, 64), (64, 4))
    layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())]
    batches = [(torch.randn(16, 64), torch.arange(16) % 4) for _ in range(2)]
    loss = nn.functional.cross_entropy
    return Workload(nn.Sequential(*layers[:-1]), batches[0][0], name=name, loss=loss, train=batches)


def test_each_method_is_compared_with_the_ablation_and_a_failure_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setattr(sensitivity, "load", small)
    measured = bench(
        ("no-such-model", "small"),
        formats=("int4-weights",),
        methods=("fisher", "ablation"),
        batches=2,
    )
    assert "no-such-model" in measured.failures
    assert measured.summary.startswith("no-such-model: ")
    fisher, ablation = measured.table()
    assert fisher["method"] == "fisher" and -1 <= float(fisher["int4-weights"]) <= 1
    assert ablation["int4-weights"] == "–" and "seconds" in ablation
    assert all(method.seconds > 0 for method in measured.records[0].methods)
    assert "small: fisher" in measured.summary
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
    monkeypatch.setattr(hessian_peer, "load", small)
    monkeypatch.setattr(hessian_peer, "_pyhessian", lambda: FakeHessian)
    monkeypatch.setattr(hessian_peer, "ERROR", 2.0)
    (traced,) = hessian_peer.bench(("small",)).models
    assert FakeHessian.calls == [["0.weight"], ["2.weight"], ["4.weight"]]
    assert traced.layers == 3 and traced.peer_probes >= 6
    assert traced.our_seconds > 0 and traced.furthest > 0


def test_without_the_peer_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyhessian", None)
    with pytest.raises(MissingExtraError, match="peers"):
        hessian_peer._pyhessian()
