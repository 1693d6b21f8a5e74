"""A model's quantized layers as plain data, and the same layers restored from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..errors import StepError
from ..model.formats import Quantized, Range, integer_bits, may_saturate, quantize
from ..model.layers import BATCH_NORMS
from ..model.replace import replace_layer
from ..records import counted
from .factory import obstacle, quantized_layer
from .layers.int8 import Exported, Int8Layer, Requantization
from .layers.layer import QuantizedLayer, tie
from .residuals import round_outputs, rounded_outputs

ROUNDED_AGAIN = (
    "rounded again, within 7 bits: saved on a processor with VNNI, and this one would saturate"
)


def norms_of(model: nn.Module) -> set[str]:
    """The batch-norm layers, any of which may be folded when layers are quantized."""
    return {name for name, layer in model.named_modules() if isinstance(layer, BATCH_NORMS)}


def remembered_of(model: nn.Module, placed: set[str], norms: set[str]) -> dict[str, Any]:
    """The folded batch-norms, each layer's format and ranges, and which share integers."""
    layers = {layer: _remembered_layer(model.get_submodule(layer)) for layer in sorted(placed)}
    live, exported = (
        {module: _pair(span) for module, span in rounded.items()}
        for rounded in (rounded_outputs(model), rounded_outputs(model, only_exported=True))
    )
    return {
        "folded": sorted(norms - norms_of(model)),
        "layers": layers,
        "shared": _sharing(model, layers),
        "answers": live,
        "exported_answers": exported,
    }


def roundings_of(model: nn.Module) -> str:
    """What an exported file of the model depends on besides its weights and its output."""
    placed = {name for name, one in model.named_modules() if isinstance(one, QuantizedLayer)}
    return repr(remembered_of(model, placed, set())) if placed else ""


def restore_layers(model: nn.Module, remembered: dict[str, Any]) -> None:
    """Restore the same layers in a model of the same code; their integers come from its weights."""
    modules = dict(model.named_modules())
    for norm in remembered["folded"]:
        if not isinstance(modules.get(norm), BATCH_NORMS):
            raise StepError(
                f"there is no batch-norm '{norm}', which was folded in the model that was saved"
            )
        replace_layer(model, norm, nn.Identity())
    for layer, fields in remembered["layers"].items():
        if layer not in modules or (reason := obstacle(modules[layer], fields["format"])):
            raise StepError(
                f"layer '{layer}' cannot be in {fields['format']} again: "
                f"{reason if layer in modules else 'there is none'}"
            )
        replace_layer(model, layer, _restored_layer(modules[layer], fields))
    # folders of earlier versions have neither shared layers nor exported answers
    tie(model, remembered.get("shared", []))
    for only_exported, answers in (
        (False, remembered["answers"]),
        (True, remembered.get("exported_answers", {})),
    ):
        spans = {module: Range(*pair) for module, pair in answers.items()}
        round_outputs(model, spans, only_exported=only_exported)


def reduce_ranges(model: nn.Module) -> list[str]:
    """Round int8 weights that would saturate here again, within 7 bits; a note if there are any."""
    module: Any = model
    if getattr(module, "is_onnx_file", False):
        from .onnx_file import reduce_file

        count, what = reduce_file(module), "int8 weight"
    else:
        count, what = _reduce_layers(model), "int8 layer"
    return [f"{counted(count, what)} {ROUNDED_AGAIN}"] if count else []


def _reduce_layers(model: nn.Module) -> int:
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, Int8Layer) and may_saturate(layer.values)
    ]
    for layer in layers:
        weight = Quantized(layer.values, layer.scales, layer.channel).dequantized()
        numbers = quantize(weight, integer_bits("int8"), channel=layer.channel)
        layer.values, layer.scales = numbers.values, numbers.scales
    return len(layers)


def _sharing(model: nn.Module, layers: Iterable[str]) -> list[list[str]]:
    holders: dict[int, list[str]] = {}
    for layer in layers:
        holders.setdefault(id(model.get_submodule(layer).values), []).append(layer)
    return [group for group in holders.values() if len(group) > 1]


def _remembered_layer(layer: nn.Module) -> dict[str, Any]:
    assert isinstance(layer, QuantizedLayer)
    fields: dict[str, Any] = {
        "format": layer.format,
        "bias": None if layer.bias is None else len(layer.bias),
    }
    if isinstance(layer, Int8Layer):
        fields |= {
            "range": _pair(layer.span),
            **_connection(layer.requantization, is_input_rounded=layer.is_input_rounded),
        }
        if (exported := layer.exported) is not None:
            fields["exported"] = _connection(
                exported.requantization, is_input_rounded=exported.is_input_rounded
            )
    return fields


def _connection(requantization: Requantization, *, is_input_rounded: bool) -> dict[str, Any]:
    return {
        "onward": _pair(requantization.span),
        "clamp": list(requantization.clamp or ()),
        "is_shared": requantization.is_shared,
        "is_given_rounded": is_input_rounded,
    }


def _requantization(fields: dict[str, Any]) -> Requantization:
    clamp = tuple(fields["clamp"]) or None
    return Requantization(_span(fields["onward"]), clamp, fields["is_shared"])


def _restored_layer(layer: nn.Module, fields: dict[str, Any]) -> QuantizedLayer:
    restored = quantized_layer(layer, fields["format"], _span(fields.get("range")))
    if isinstance(restored, Int8Layer):
        restored.requantization = _requantization(fields)
        restored.is_input_rounded = fields["is_given_rounded"]
        if exported := fields.get("exported"):
            restored.exported = Exported(_requantization(exported), exported["is_given_rounded"])
    restored.bias = (
        None
        if fields["bias"] is None
        else torch.zeros(fields["bias"], device=restored.scales.device)
    )
    return restored


def _pair(span: Range | None) -> list[float] | None:
    return None if span is None else [span.low, span.high]


def _span(pair: list[float] | None) -> Range | None:
    return None if pair is None else Range(*pair)
