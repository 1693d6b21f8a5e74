"""Where a loss that is not finite began: one more run of a copy of the model on its last inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..model.tensors import tensors_in
from ..model.watch import describe, first_nan, has_nan
from .calls import AcceleratedCall
from .switches.base import Call


def origin_of_nan(
    calls: Iterable[AcceleratedCall], calls_of_copies: Callable[[nn.Module], Call]
) -> str:
    """Where a NaN began in the models' last calls, as the end of a sentence; a copy is called as
    `calls_of_copies` says, which is as the loop calls its models now.
    """
    origins = [_origin(call.model, call.last, calls_of_copies) for call in calls]
    return next(filter(None, origins), "it began after the model, in the loss")


def _origin(model: nn.Module, last: Any, calls_of_copies: Callable[[nn.Module], Call]) -> str:
    if last is None:
        return ""
    if has_nan(last):
        return "it came with the inputs of the model"
    outputs: list[Any] = []
    try:
        twin = copy.deepcopy(model)
        call = calls_of_copies(twin)
        run = lambda: outputs.append(call(*last))
        with torch.random.fork_rng(), torch.no_grad():
            layer = first_nan(twin, run)
            overflowing = "" if layer else first_nan(twin, run, is_bad=_has_infinity)
    except Exception as error:
        return f"where it began is not known: a copy does not run ({type(error).__name__})"
    if layer:
        return f"it began in {describe(model, layer)}"
    if overflowing and (has_nan(outputs) or _has_infinity(outputs)):
        return f"it began in {describe(model, overflowing)}, whose output overflows"
    return f"it began in {describe(model, '')}" if has_nan(outputs) else ""


def _has_infinity(output: Any) -> bool:
    floats = (leaf for leaf in tensors_in(output) if leaf.is_floating_point())
    return any(bool(torch.isinf(leaf).any()) for leaf in floats)
