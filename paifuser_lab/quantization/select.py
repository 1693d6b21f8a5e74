"""The chosen layers that can be quantized."""

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
    """The message on why a model has no layer to quantize."""
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
    """The requested formats without the layers that do not support theirs, and a note on each of
    those that has weights.

    Raises where such a layer was requested by its own name, or where no layer supports its format.
    """
    return _supported(model, obstacles_of(model, trace_graph(work, model), wanted), wanted, by_name)


def supported_without_data(
    model: nn.Module, wanted: Mapping[str, str], by_name: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The same for a model without known inputs; formats that need input ranges are refused."""
    for layer, name in wanted.items():
        if name == "int8":
            raise StepError(
                f"{describe(model, layer)} in int8 needs the range of its input, which is "
                "calibrated on data; pass data, or use int8-weights"
            )
    return _supported(model, obstacles_of(model, None, wanted), wanted, by_name)


def _supported(
    model: nn.Module,
    reasons: Mapping[str, str],
    wanted: Mapping[str, str],
    by_name: Collection[str],
) -> tuple[dict[str, str], list[str]]:
    for layer, reason in reasons.items():
        if layer in by_name:
            raise StepError(f"{describe(model, layer)} cannot be in {wanted[layer]}: {reason}.")
    supported = {layer: name for layer, name in wanted.items() if layer not in reasons}
    if not supported:
        layer, reason = next(iter(reasons.items()))
        raise StepError(
            f"none of the chosen layers can be in {wanted[layer]}; {describe(model, layer)}: "
            f"{reason}."
        )
    with_weights = {
        layer: reason
        for layer, reason in reasons.items()
        if channel_of(model.get_submodule(layer)) is not None
    }
    return supported, [
        f"layer '{layer}' stays as it is: {reason}" for layer, reason in with_weights.items()
    ]
