"""Our traces of layers' blocks of the Hessian against PyHessian's, on one batch: seconds to the
same standard error.

PyHessian knows the trace of all that has gradients, so that a layer's is asked for with the
gradients of all others switched off. It runs a few probes a layer; their spread says how many it
would need for the error that ours has reached.
"""

from __future__ import annotations

import copy
import time
from statistics import fmean, variance
from typing import Any

from torch import nn

from ..errors import MeasureError, MissingExtraError
from ..machine import hardware
from ..progress import progress
from ..records import LayerSensitivity, Record
from ..saliency import sensitivity
from ..workload import Workload
from ..workload.load import load

MODELS = ("resnet18-digits-tiny", "resnet18-digits")
PROBES = 8
ERROR = 0.1


class TracedModel(Record):
    """One model's layers: what ours took, and what the peer would take for the same errors."""

    workload: str
    layers: int
    our_seconds: float
    quadratic_seconds: float
    peer_seconds: float
    peer_probes: int
    furthest: float  # the largest difference of the two means, in standard errors of the difference

    @property
    def ratio(self) -> float:
        """How many times as long the peer takes."""
        return self.peer_seconds / self.our_seconds


class HessianBench(Record):
    """What `paifuser-lab bench sensitivity --peer pyhessian` measured."""

    machine: str
    models: tuple[TracedModel, ...]

    @property
    def title(self) -> str:
        """What the table shows."""
        return (
            f"seconds for every layer's trace within ±{ERROR:.0%} on one batch, on {self.machine}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row a model."""
        return [
            {
                "model": one.workload,
                "layers": str(one.layers),
                "ours": f"{one.our_seconds:.2f}",
                "PyHessian, layer by layer": f"{one.peer_seconds:.2f} ({one.peer_probes} probes)",
                "ratio": f"{one.ratio:.1f} ×",
                "quadratic form instead": f"{one.quadratic_seconds:.2f}",
                "means differ at most by": f"{one.furthest:.1f} standard errors",
            }
            for one in self.models
        ] or [{"model": "nothing was measured"}]


def bench(names: tuple[str, ...]) -> HessianBench:
    """Measure models one after another."""
    found = []
    with progress("models", len(names or MODELS)) as shown:
        for name in names or MODELS:
            found.append(_measured(load(name)))
            shown.advance(doing=name)
    return HessianBench(machine=hardware().label, models=tuple(found))


def _measured(work: Workload) -> TracedModel:
    if not work.train or work.loss is None:
        raise MeasureError(
            f"{work.name} has no loss and data, and there is no Hessian without; name a trained "
            "model."
        )
    ours = sensitivity(work, methods=("trace",), formats=("int4-weights",), batches=1, error=ERROR)
    quadratic = sensitivity(work, methods=("quadratic",), formats=("int4-weights",), batches=1)
    judged = [
        row
        for row in ours.rows
        if row.curvature and row.curvature.trace and row.curvature.trace.error
    ]
    batch = _batch_of(work, ours.seed)
    model = copy.deepcopy(work.model).eval()
    peers = [_peer(model, work, batch, row) for row in judged]
    return TracedModel(
        workload=work.name,
        layers=len(judged),
        our_seconds=ours.methods[0].seconds,
        quadratic_seconds=quadratic.methods[0].seconds,
        peer_seconds=sum(seconds for seconds, _, _ in peers),
        peer_probes=round(sum(probes for _, probes, _ in peers)),
        furthest=max(distance for _, _, distance in peers),
    )


def _batch_of(work: Workload, seed: int) -> tuple[Any, Any]:
    """The batch that ours was judged on."""
    from ..workload.data import sampled_batches

    first = sampled_batches(work, 1, seed)[0]
    return first.inputs.args[0], first.target


def _peer(
    model: nn.Module, work: Workload, batch: tuple[Any, Any], row: LayerSensitivity
) -> tuple[float, float, float]:
    """Seconds and probes that the peer needs for a layer, and how far its mean is from ours in
    standard errors.
    """
    estimate = row.curvature.trace if row.curvature else None
    if estimate is None or not estimate.error:
        raise MeasureError(f"'{row.layer}' has no trace to compare with.")
    model.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    model.get_submodule(row.layer).weight.requires_grad_(True)
    began = time.perf_counter()
    seen = _pyhessian()(model, work.loss, data=batch, cuda=False)
    prepared = time.perf_counter()
    values = seen.trace(
        maxIter=PROBES, tol=float("-inf")
    )  # with its own stop it ends at any negative trace
    seconds_a_probe = (time.perf_counter() - prepared) / len(values)
    probes = max(2.0, variance(values) / estimate.error**2)
    apart = (
        abs(fmean(values) - estimate.value)
        / (variance(values) / len(values) + estimate.error**2) ** 0.5
    )
    return prepared - began + probes * seconds_a_probe, probes, apart


def _pyhessian() -> Any:
    try:
        from pyhessian import hessian
    except ImportError as error:
        raise MissingExtraError(
            "pyhessian", extra="peers", needed_for="the comparison of traces"
        ) from error
    return hessian
