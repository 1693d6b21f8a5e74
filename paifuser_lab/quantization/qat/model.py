"""Layers that are trained quantized, and become quantized layers after training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ...model.fold import fold, plan_fold
from ...model.formats import Range
from ...model.graph import Graph
from ...model.layers import BATCH_NORMS
from ...model.replace import replace_layer
from ...workload import Workload
from ...workload.data import calibration_batches
from ..layers.int8 import Int8Layer
from ..neighbours import handovers
from ..quantize import Calibration, output_spans_of, runs, spans_of, trace_graph
from ..residuals import connect_exported, plan_residuals, round_outputs
from .layers import QatInt8, QatLayer, QatWeightsOnly
from .straight_through import LearnedRange


@dataclass(frozen=True)
class QatModel:
    """The layers of a model that are trained quantized, and its batch-norms."""

    work: Workload
    model: nn.Module
    layers: Mapping[str, QatLayer]
    folded: int  # the number of batch-norms folded into layers
    learns: bool  # whether ranges and scales are learned
    calibration: Calibration
    graph: Graph  # of the model with those batch-norms folded

    @property
    def norms(self) -> list[nn.Module]:
        """The batch-norms that collect statistics."""
        return [module for module in self.model.modules() if isinstance(module, BATCH_NORMS)]

    def convert(self) -> int:
        """Replace the trained layers by the quantized ones that they represent; return how many
        sums are on integers in exported files.
        """
        layers = {layer: trained.converted() for layer, trained in self.layers.items()}
        int8 = {layer: new for layer, new in layers.items() if isinstance(new, Int8Layer)}
        spans = {layer: new.span for layer, new in int8.items()}
        plan = plan_residuals(self.graph, spans)
        output_ranges = self._output_ranges(plan.unknown) if plan.unknown else {}
        connect_exported(int8, plan, output_ranges)
        for layer, new in layers.items():
            replace_layer(self.model, layer, new)
        round_outputs(self.model, plan.spans(spans, output_ranges), only_exported=True)
        return plan.sums

    def _output_ranges(self, layers: list[str]) -> dict[str, Range]:
        """The ranges of layers' outputs, in the model as it is trained."""
        data = calibration_batches(self.work, self.calibration.batches)
        calls = runs(self.model, data or [self.work.inputs])
        return output_spans_of(self.model, calls, self.calibration, layers)


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
    pairs = plan_fold(model, trace_graph(work, model)).pairs
    norms = {layer: norm for layer, norm in pairs if layer in int8}
    folded = copy.deepcopy(model)
    fold(folded, norms.items())
    spans = spans_of(work, folded, int8, calibration)
    graph = trace_graph(work, folded)
    handover_of = handovers(graph, spans)
    sharing = [
        *(handover.readers for handover in handover_of.values()),
        *(rounding.consumers for rounding in plan_residuals(graph, spans).roundings),
    ]
    ranges = _ranges(spans, filter(None, sharing), work.device, learns=learns)
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
    return QatModel(work, model, layers, len(norms), learns, calibration, graph)


def _ranges(
    spans: Mapping[str, Range],
    sharing: Iterable[tuple[str, ...]],
    device: torch.device,
    *,
    learns: bool,
) -> dict[str, LearnedRange]:
    """A range for each layer; those that read the same int8 values, in files too, share one."""
    ranges = {
        layer: LearnedRange(span, learns=learns, device=device) for layer, span in spans.items()
    }
    for readers in sharing:
        replaced = {ranges[reader] for reader in readers}
        shared = ranges[min(readers)]
        ranges |= {
            layer: shared for layer, learned_range in ranges.items() if learned_range in replaced
        }
    return ranges
