"""The refits by name, applied in turn; one that does not reduce the output's error is undone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...measure import output_error
from ...model.watch import watching
from ...quantization.compensation.context import Outcome
from ...records import counted
from ...workload import Workload, running
from ...workload.data import Samples, samples_of
from ..groups.proof import outputs_of
from .least_squares import refit
from .shrunk_layers import RefitContext, ShrunkLayer

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def reestimate_statistics(context: RefitContext) -> Outcome:
    """Store the statistics of each batch-norm's input in a run that normalises by them."""
    norms: dict[str, Any] = {
        name: module
        for name, module in context.model.named_modules()
        if isinstance(module, NORMS) and module.running_mean is not None
    }
    statistics: dict[str, tuple[Tensor, Tensor]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer not in norms:
            return
        inputs: Tensor = (*args, *kwargs.values())[0]
        values = inputs.detach().movedim(1, 0).flatten(1).double()
        norms[layer].training = values.shape[1] > 1  # a single value has no variance
        if norms[layer].training:
            statistics[layer] = values.mean(1), values.var(1)

    with running(context.model), watching(context.model, enter, lambda layer, output: None):
        context.samples.first(context.samples.learned).clone()(context.model)
    with torch.no_grad():
        for layer, (mean, variance) in statistics.items():
            norms[layer].running_mean.copy_(mean)
            norms[layer].running_var.copy_(variance)
    if not statistics:
        return Outcome(0, "there is no batch-norm whose statistics could be measured again")
    return Outcome(
        len(statistics),
        f"measured the statistics of {counted(len(statistics), 'batch-norm')} again",
    )


Repair = Literal["least-squares", "batch-norm"]
# in the order in which they are applied
REPAIRS: dict[Repair, Callable[[RefitContext], Outcome]] = {
    "least-squares": refit,
    "batch-norm": reestimate_statistics,
}


def refit_model(
    work: Workload,
    before: nn.Module,
    model: nn.Module,
    lost: Mapping[str, ShrunkLayer],
    repairs: Collection[Repair],
) -> list[str]:
    """Bring a model's outputs closer to those before the cut; a note for each refit."""
    samples = samples_of(work)
    context = RefitContext(before, model, lost, samples, work)
    reference = _outputs(before, samples)
    error = output_error(reference, _outputs(model, samples))[0]
    notes = []
    for technique in (technique for name, technique in REPAIRS.items() if name in repairs):
        saved = {name: value.detach().clone() for name, value in _values(model).items()}
        result = technique(context)
        if not result.count:
            notes.append(result.note)
            continue
        new_error = output_error(reference, _outputs(model, samples))[0]
        change = f"output error {error:.2g} → {new_error:.2g} on {samples.judges}"
        if new_error < error:
            error = new_error
            notes.append(f"{result.note}: {change}")
        else:
            with torch.no_grad():
                for name, value in _values(model).items():
                    value.copy_(saved[name])
            notes.append(f"{result.note}, and took that back: {change}")
    return notes


def repairs_for(requested: Sequence[Repair] | None, work: Workload) -> Sequence[Repair]:
    """The requested refits; by default all where there is train data, not just a few examples."""
    if requested is None:
        return tuple(REPAIRS) if work.train is not None else ()
    return requested


def _outputs(model: nn.Module, samples: Samples) -> list[Tensor]:
    """The held-out part of a model's output on the samples."""
    outputs = outputs_of(model, samples.inputs)
    return [samples.judged(leaf) for leaf in outputs if leaf.is_floating_point()]


def _values(model: nn.Module) -> dict[str, Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))
