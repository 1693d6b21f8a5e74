"""The layers that can be quantized, of those chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from ..errors import StepError
from ..model.layers import channel_of
from ..model.watch import describe
from ..workload import Workload
from .layers.layer import QuantizedLayer
from .quantize import obstacles_of, trace_graph


def no_layer_message(model: nn.Module, kind: str) -> str:
    """The message on why no layer of a model can be quantized."""
    rounded = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, QuantizedLayer)
    }
    if rounded:
        name, layer = next(iter(rounded.items()))
        return (
            f"'{name}' is in {layer.format} already, and is not rounded again; let one '{kind}' "
            "say all of it."
        )
    if next(model.children(), None) is None and next(model.parameters(), None) is not None:
        return (
            f"the model is itself a {type(model).__name__}, and a layer is rounded inside a model; "
            "wrap it: nn.Sequential(model)."
        )
    return "it has no layer with weights that could be rounded; leave the step out."


def supported_formats(
    work: Workload, model: nn.Module, wanted: Mapping[str, str], by_name: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The wanted formats without the layers that cannot have theirs, and which with weights those
    are.

    One that is wanted by its own name is an error, as it is where none can.
    """
    return _sorted_out(
        model, obstacles_of(model, trace_graph(work, model), wanted), wanted, by_name
    )


def supported_without_data(
    model: nn.Module, wanted: Mapping[str, str], by_name: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The same for a model of which no inputs are known; formats that need ranges of inputs are
    refused.
    """
    for layer, name in wanted.items():
        if name == "int8":
            raise StepError(
                f"{describe(model, layer)} in int8 needs the range of its input, which is "
                "found on data; "
                "give data, or take int8-weights"
            )
    return _sorted_out(model, obstacles_of(model, None, wanted), wanted, by_name)


def _sorted_out(
    model: nn.Module,
    reasons: Mapping[str, str],
    wanted: Mapping[str, str],
    by_name: Collection[str],
) -> tuple[dict[str, str], list[str]]:
    for layer, reason in reasons.items():
        if layer in by_name:
            raise StepError(f"{describe(model, layer)} cannot be in {wanted[layer]}: {reason}.")
    found = {layer: name for layer, name in wanted.items() if layer not in reasons}
    if not found:
        layer, reason = next(iter(reasons.items()))
        raise StepError(
            f"none of the chosen layers can be in {wanted[layer]}; {describe(model, layer)}: "
            f"{reason}."
        )
    weighty = {
        layer: why
        for layer, why in reasons.items()
        if channel_of(model.get_submodule(layer)) is not None
    }
    return found, [f"layer '{layer}' stays as it is: {why}" for layer, why in weighty.items()]
