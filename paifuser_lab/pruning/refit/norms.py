"""The means and variances that batch-norms keep, measured on the model as it is now."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...model.watch import watching
from ...records import counted
from ...workload import running
from .context import RefitContext, RefitResult

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
