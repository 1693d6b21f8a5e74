"""What a model's quantized layers are beside their weights, as plain data, and the same layers in a
fresh model without data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..errors import StepError
from ..formats import Range
from ..model.layers import BATCH_NORMS
from ..model.replace import replace_layer
from .factory import obstacle, quantized_layer
from .layers.int8 import Int8Layer, Outlet
from .layers.layer import QuantizedLayer
from .residuals import round_answers, rounded_answers


def norms_of(model: nn.Module) -> set[str]:
    """The batch-norm layers, any of which may be folded when layers are put in place."""
    return {name for name, layer in model.named_modules() if isinstance(layer, BATCH_NORMS)}


def remembered_of(model: nn.Module, placed: set[str], norms: set[str]) -> dict[str, Any]:
    """Which of the norms are gone, and what each of the placed layers is."""
    layers = {layer: _told(model.get_submodule(layer)) for layer in sorted(placed)}
    answers = {module: _pair(span) for module, span in rounded_answers(model).items()}
    return {"folded": sorted(norms - norms_of(model)), "layers": layers, "answers": answers}


def place_again(model: nn.Module, remembered: dict[str, Any]) -> None:
    """Put the same layers in the places of a model of the same code; their numbers are what its
    weights round to.
    """
    modules = dict(model.named_modules())
    for norm in remembered["folded"]:
        if not isinstance(modules.get(norm), BATCH_NORMS):
            raise StepError(
                f"there is no batch-norm '{norm}', which was folded in the model that was saved"
            )
        replace_layer(model, norm, nn.Identity())
    for layer, one in remembered["layers"].items():
        if layer not in modules or (reason := obstacle(modules[layer], one["format"])):
            raise StepError(
                f"layer '{layer}' cannot be in {one['format']} again: "
                f"{reason if layer in modules else 'there is none'}"
            )
        replace_layer(model, layer, _made(modules[layer], one))
    round_answers(model, {module: Range(*pair) for module, pair in remembered["answers"].items()})


def _told(layer: nn.Module) -> dict[str, Any]:
    assert isinstance(layer, QuantizedLayer)
    told: dict[str, Any] = {
        "format": layer.format,
        "bias": None if layer.bias is None else len(layer.bias),
    }
    if isinstance(layer, Int8Layer):
        told |= {
            "range": _pair(layer.span),
            "onward": _pair(layer.outlet.span),
            "clamp": list(layer.outlet.clamp or ()),
        }
        told |= {"is_shared": layer.outlet.is_shared, "is_given_rounded": layer.is_given_rounded}
    return told


def _made(layer: nn.Module, told: dict[str, Any]) -> QuantizedLayer:
    made = quantized_layer(layer, told["format"], _span(told.get("range")))
    if isinstance(made, Int8Layer):
        made.outlet = Outlet(_span(told["onward"]), tuple(told["clamp"]) or None, told["is_shared"])
        made.is_given_rounded = told["is_given_rounded"]
    made.bias = (
        None if told["bias"] is None else torch.zeros(told["bias"], device=made.scales.device)
    )
    return made


def _pair(span: Range | None) -> list[float] | None:
    return None if span is None else [span.low, span.high]


def _span(pair: list[float] | None) -> Range | None:
    return None if pair is None else Range(*pair)
