"""Traces of the Hessian's diagonal blocks of layers, by ours and by PyHessian on one batch: seconds
to the same standard error.

PyHessian estimates the trace over all parameters with gradients, so that a layer's is computed with
the gradients of all others switched off. It runs a few probes per layer, whose variance gives the
number of probes that it would need for the error that ours has reached.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Any, ClassVar

from torch import nn

from paifuser_lab.bench.runner import BenchRecord, Columns, measured_rows
from paifuser_lab.errors import MeasureError, optional_module
from paifuser_lab.records import Estimate, Record
from paifuser_lab.saliency import sensitivity
from paifuser_lab.variant.load import load
from paifuser_lab.workload import Workload
from paifuser_lab.workload.data import sampled_batches

MODELS = ("resnet18-digits-tiny", "resnet18-digits")
PROBES = 8
ERROR = 0.1


class TracedModel(Record):
    """One model's layers: our cost, and the peer's for the same errors."""

    workload: str
    layers: int
    our_seconds: float
    quadratic_seconds: float
    peer_seconds: float
    peer_probes: int
    furthest: float  # the largest difference of the two means, in standard errors of the difference

    @property
    def ratio(self) -> float:
        """The peer's time over ours."""
        return self.peer_seconds / self.our_seconds


class HessianBench(BenchRecord):
    """The result of `python -m benchmarks sensitivity --peer pyhessian`."""

    caption = f"seconds for every layer's trace within ±{ERROR:.0%} on one batch, on {{0.machine}}"
    models: tuple[TracedModel, ...]
    row_field = "models"
    columns: ClassVar[Columns] = {
        "model": "workload",
        "layers": "layers",
        "ours": lambda model: f"{model.our_seconds:.2f}",
        "PyHessian, layer by layer": lambda model: (
            f"{model.peer_seconds:.2f} ({model.peer_probes} probes)"
        ),
        "ratio": lambda model: f"{model.ratio:.1f} ×",
        "quadratic form instead": lambda model: f"{model.quadratic_seconds:.2f}",
        "means differ at most by": lambda model: f"{model.furthest:.1f} standard errors",
    }


def bench(names: Sequence[str] | None) -> HessianBench:
    """Measure models one after another."""
    measured = measured_rows(names or MODELS, lambda name: [_measured(load(name))])
    return HessianBench(models=measured["rows"], failures=measured["failures"])


def _measured(work: Workload) -> TracedModel:
    if not work.train or work.loss is None:
        raise MeasureError(
            f"{work.name} has no loss and data, which the Hessian needs; name a trained model."
        )
    ours = sensitivity(work, methods=("trace",), formats=("int4-weights",), batches=1, error=ERROR)
    quadratic = sensitivity(work, methods=("quadratic",), formats=("int4-weights",), batches=1)
    traces = {
        row.layer: row.curvature.trace
        for row in ours.rows
        if row.curvature and row.curvature.trace and row.curvature.trace.error
    }
    first = sampled_batches(work, 1, ours.seed)[0]  # the batch that our estimate used
    batch = first.inputs.args[0], first.target
    model = copy.deepcopy(work.model).eval()
    peers = [_peer(model, work, batch, *trace) for trace in traces.items()]
    return TracedModel(
        workload=work.name,
        layers=len(traces),
        our_seconds=ours.methods[0].seconds,
        quadratic_seconds=quadratic.methods[0].seconds,
        peer_seconds=sum(seconds for seconds, _, _ in peers),
        peer_probes=round(sum(probes for _, probes, _ in peers)),
        furthest=max(distance for _, _, distance in peers),
    )


def _peer(
    model: nn.Module, work: Workload, batch: tuple[Any, Any], layer: str, ours: Estimate
) -> tuple[float, float, float]:
    """The seconds and probes that the peer needs for a layer, and the distance of its mean from
    ours in standard errors.
    """
    assert ours.error
    model.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    model.get_submodule(layer).weight.requires_grad_(True)
    start = time.perf_counter()
    peer = _pyhessian()(model, work.loss, data=batch, cuda=False)
    prepared = time.perf_counter()
    # with its own tolerance it ends at any negative trace
    values = peer.trace(maxIter=PROBES, tol=float("-inf"))
    probe_seconds = (time.perf_counter() - prepared) / len(values)
    probes = max(2.0, variance(values) / ours.error**2)
    distance = (
        abs(fmean(values) - ours.value) / (variance(values) / len(values) + ours.error**2) ** 0.5
    )
    return prepared - start + probes * probe_seconds, probes, distance


def _pyhessian() -> Any:
    package = optional_module("pyhessian", extra="peers", needed_for="the comparison of traces")
    return package.hessian
