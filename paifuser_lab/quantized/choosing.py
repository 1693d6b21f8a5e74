"""The layers that run in whole numbers, of those that a person chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from ..errors import StepError
from ..formats import channel_of
from ..locate import describe
from ..workload import Workload
from .placing import reasons_against, seen


def possible(
    work: Workload, model: nn.Module, wanted: Mapping[str, str], by_name: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The wanted formats without the layers that cannot have theirs, and which with weights those are.

    One that is wanted by its own name is an error, as it is where none can.
    """
    reasons = reasons_against(model, seen(work, model), wanted)
    for layer, reason in reasons.items():
        if layer in by_name:
            raise StepError(f"{describe(model, layer)} cannot be in {wanted[layer]}: {reason}.")
    found = {layer: name for layer, name in wanted.items() if layer not in reasons}
    if not found:
        layer, reason = next(iter(reasons.items()))
        raise StepError(f"none of the chosen layers can be in {wanted[layer]}; {describe(model, layer)}: {reason}.")
    weighty = {layer: why for layer, why in reasons.items() if channel_of(model.get_submodule(layer)) is not None}
    return found, [f"layer '{layer}' stays as it is: {why}" for layer, why in weighty.items()]
