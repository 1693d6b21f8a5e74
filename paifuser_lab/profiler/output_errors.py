"""How far the output of each layer is from the one before a change: where accuracy is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..engines.engine import Engine
from ..measure import output_error
from ..model.watch import FAILED, watching
from ..records import Profile
from ..workload import Workload

FALLS = 4  # an error that falls by more at the next layer is of another output, not a loss


def output_errors(before: Workload, after: Workload) -> dict[str, float]:
    """Layer → relative L2 error of its output for the same inputs, in the order of calls.

    A layer is compared where both models have it and it computes the same: not where the next one
    was folded or fused into it, or in int8 its activation.
    """
    references, outputs = _outputs(before), _outputs(after)
    errors = {
        layer: output_error(references[layer], outputs[layer])[0]
        for layer in outputs.keys() & references.keys()
        if _shapes(references[layer]) == _shapes(outputs[layer])
    }
    absorbed = references.keys() - outputs.keys() | _identities(after) - _identities(before)
    following = dict(pairwise(references))
    return {
        layer: error
        for layer in references
        if (error := errors.get(layer)) is not None
        and (follower := following.get(layer, "")) not in absorbed
        and error <= FALLS * errors.get(follower, error)
    }


def added_errors(errors: Mapping[str, float], profile: Profile) -> dict[str, float]:
    """Layer → the error of its output beyond that of its inputs."""

    def of_inputs(layer: str, seen: set[str]) -> float:
        new = {one for one in profile[layer].reads_from if one in profile} - seen
        seen |= new  # a layer that is called again may read what it made
        return max(
            (errors[one] if one in errors else of_inputs(one, seen) for one in new), default=0.0
        )

    return {
        layer: error - of_inputs(layer, {layer})
        for layer, error in errors.items()
        if layer and layer in profile and profile[layer].kind != "Identity"
    }


def _identities(work: Workload) -> set[str]:
    modules = _layered(work).named_modules()
    return {name for name, module in modules if isinstance(module, nn.Identity)}


def _layered(work: Workload) -> nn.Module:
    """The model with the layers: of an engine, the one that it runs."""
    return work.model.module if isinstance(work.model, Engine) else work.model


def _outputs(work: Workload) -> dict[str, list[Tensor]]:
    """What each layer without layers of its own returns, a tensor a call; '' is the model."""
    model, inputs = _layered(work), work.inputs.clone()
    leaves = {name for name, module in model.named_modules() if not any(module.children())}
    outputs: defaultdict[str, list[Tensor]] = defaultdict(list)

    def leave(layer: str, output: Any) -> None:
        if output is not FAILED and isinstance(output, Tensor) and (layer in leaves or not layer):
            outputs[layer].append(output.detach().clone())  # a later layer may write over it

    with watching(model, lambda layer, args, kwargs: None, leave), torch.no_grad():
        inputs(model)
    return outputs


def _shapes(tensors: list[Tensor]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors]
