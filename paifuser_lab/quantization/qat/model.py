"""Layers that are trained quantized, and become quantized layers after training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ...model.fold import fold, plan_fold
from ...model.formats import Range
from ...model.layers import BATCH_NORMS
from ...model.replace import replace_layer
from ...workload import Workload
from ..neighbours import Handover, handovers
from ..quantize import Calibration, spans_of, trace_graph
from .layers import QatInt8, QatLayer, QatWeightsOnly
from .straight_through import LearnedRange


@dataclass(frozen=True)
class QatModel:
    """The layers of a model that are trained quantized, and its batch-norms."""

    model: nn.Module
    layers: Mapping[str, QatLayer]
    folded: int  # the number of batch-norms folded into layers
    learns: bool  # whether ranges and scales are learned

    @property
    def norms(self) -> list[nn.Module]:
        """The batch-norms that collect statistics."""
        return [module for module in self.model.modules() if isinstance(module, BATCH_NORMS)]

    def convert(self) -> None:
        """Replace the trained layers by the quantized ones that they represent."""
        for layer, trained in self.layers.items():
            replace_layer(self.model, layer, trained.converted())


def prepare(
    work: Workload,
    model: nn.Module,
    chosen: Mapping[str, str],
    calibration: Calibration,
    *,
    learns: bool = True,
    reduced_range: bool | None = None,
) -> QatModel:
    """Replace the chosen layers by trainable quantized ones; each must support its format."""
    int8 = [layer for layer, name in chosen.items() if name == "int8"]
    norms = (
        {
            layer: norm
            for layer, norm in plan_fold(model, trace_graph(work, model)).pairs
            if layer in int8
        }
        if int8
        else {}
    )
    folded = copy.deepcopy(model)
    fold(folded, norms.items())
    spans = spans_of(work, folded, int8, calibration)
    handover_of = handovers(trace_graph(work, folded), spans) if int8 else {}
    ranges = _ranges(spans, handover_of.values(), work.device, learns=learns)
    layers: dict[str, QatLayer] = {}
    for layer, name in chosen.items():
        original = model.get_submodule(layer)
        if name != "int8":
            layers[layer] = QatWeightsOnly(original, name, learns=learns)
            continue
        norm = model.get_submodule(norms[layer]) if layer in norms else None
        layers[layer] = trained = QatInt8(
            original, ranges[layer], norm=norm, learns=learns, reduced_range=reduced_range
        )
        if layer in handover_of:
            trained.requantize_to(
                handover_of[layer].requantization, ranges[min(handover_of[layer].readers)]
            )
    for norm_name in norms.values():
        replace_layer(model, norm_name, nn.Identity())
    for layer, new in layers.items():
        replace_layer(model, layer, new)
    return QatModel(model, layers, len(norms), learns)


def _ranges(
    spans: Mapping[str, Range],
    all_handovers: Iterable[Handover],
    device: torch.device,
    *,
    learns: bool,
) -> dict[str, LearnedRange]:
    """A range for each layer; layers that read the same int8 values share one."""
    ranges = {
        layer: LearnedRange(span, learns=learns, device=device) for layer, span in spans.items()
    }
    for handover in all_handovers:
        replaced = {ranges[reader] for reader in handover.readers}
        shared = ranges[min(handover.readers)]
        ranges |= {
            layer: shared for layer, learned_range in ranges.items() if learned_range in replaced
        }
    return ranges
