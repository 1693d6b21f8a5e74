"""The refits by name, applied in turn; each is kept only if it reduces the error of the model's
output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...measure import output_error
from ...model.watch import watching
from ...records import counted
from ...workload import Workload, running
from ...workload.data import Samples, samples_of
from .context import RefitContext, RefitResult
from .least_squares import refit
from .shrunk_layers import ShrunkLayer

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def measure_again(context: RefitContext) -> RefitResult:
    """Run the model once on the samples, each batch-norm by the statistics of what it is given
    there, and keep those.
    """
    norms: dict[str, Any] = {
        name: one for name, one in context.model.named_modules() if _keeps_statistics(one)
    }
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer not in norms:
            return
        given: Tensor = (*args, *kwargs.values())[0]
        values = given.detach().movedim(1, 0).flatten(1).double()
        norms[layer].training = values.shape[1] > 1  # of a single value there is no variance
        if norms[layer].training:
            found[layer] = values.mean(1), values.var(1)

    with running(context.model), watching(context.model, enter, lambda layer, answer: None):
        context.samples.inputs.clone()(context.model)
    with torch.no_grad():
        for layer, (mean, variance) in found.items():
            norms[layer].running_mean.copy_(mean)
            norms[layer].running_var.copy_(variance)
    if not found:
        return RefitResult(0, "there is no batch-norm whose statistics could be measured again")
    return RefitResult(
        len(found), f"measured the statistics of {counted(len(found), 'batch-norm')} again"
    )


def _keeps_statistics(module: nn.Module) -> bool:
    return isinstance(module, NORMS) and module.running_mean is not None


Repair = Literal["least-squares", "batch-norm"]
REPAIRS: dict[
    Repair, Callable[[RefitContext], RefitResult]
] = {  # in the order in which they are done
    "least-squares": refit,
    "batch-norm": measure_again,
}


def refit_model(
    work: Workload,
    before: nn.Module,
    model: nn.Module,
    lost: Mapping[str, ShrunkLayer],
    wanted: Collection[Repair],
) -> list[str]:
    """Bring the outputs of a model closer to those of the model before the cut; a note for each
    refit on what it changed and gained.
    """
    samples = samples_of(work)
    context = RefitContext(before, model, lost, samples, work.inputs)
    reference = _answers(before, samples)
    error = output_error(reference, _answers(model, samples))[0]
    notes = []
    for technique in (one for name, one in REPAIRS.items() if name in wanted):
        kept = {name: value.detach().clone() for name, value in _values(model).items()}
        done = technique(context)
        if not done.count:
            notes.append(done.note)
            continue
        found = output_error(reference, _answers(model, samples))[0]
        judged = f"output error {error:.2g} → {found:.2g} on {samples.judges}"
        if found < error:
            error = found
            notes.append(f"{done.note}: {judged}")
        else:
            _put_back(model, kept)
            notes.append(f"{done.note}, and took that back: {judged}")
    return notes


def repairs_for(wanted: Sequence[Repair] | None, work: Workload) -> Sequence[Repair]:
    """What was asked for; by itself every repair, where there is data that is more than a few
    examples.
    """
    if wanted is None:
        return tuple(REPAIRS) if work.train is not None else ()
    return wanted


def _answers(model: nn.Module, samples: Samples) -> list[Tensor]:
    """What judges, of a model's answer."""
    given = samples.inputs.clone()
    with running(model):
        answer: Any = given(model)
    return [
        samples.judged(leaf)
        for leaf in pytree.tree_leaves(answer)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


def _values(model: nn.Module) -> dict[str, Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


def _put_back(model: nn.Module, kept: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in _values(model).items():
            value.copy_(kept[name])
