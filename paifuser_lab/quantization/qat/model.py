"""Put layers that are trained quantized in the places of a model's own, and in theirs, when
they have learned, the live ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import nn

from ...formats import Range
from ...model.fold import fold, plan_fold
from ...model.layers import BATCH_NORMS
from ...model.replace import replace_layer
from ...workload import Workload
from ..neighbours import Handover, handovers
from ..quantize import Calibration, spans_of, trace_graph
from .int8 import QatInt8
from .layer import QatLayer
from .learned_ranges import LearnedRange
from .weights_only import QatWeightsOnly


@dataclass(frozen=True)
class QatModel:
    """The layers of a model that are trained quantized, and its batch-norms, those inside such
    layers too.
    """

    model: nn.Module
    layers: Mapping[str, QatLayer]
    folded: int  # batch-norms that are in layers
    learns: bool  # ranges and scales too

    @property
    def norms(self) -> list[nn.Module]:
        """The batch-norms that gather statistics."""
        return [module for module in self.model.modules() if isinstance(module, BATCH_NORMS)]

    def convert(self) -> None:
        """Put the live layers in place, as those that learned are now."""
        for layer, learned in self.layers.items():
            replace_layer(self.model, layer, learned.converted())


def prepare(
    work: Workload,
    model: nn.Module,
    chosen: Mapping[str, str],
    calibration: Calibration,
    *,
    learns: bool = True,
) -> QatModel:
    """Put learning layers of the chosen formats in place, all of which have to be possible."""
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
    met = handovers(trace_graph(work, folded), spans) if int8 else {}
    ranges = _ranges(spans, met.values(), learns=learns)
    layers: dict[str, QatLayer] = {}
    for layer, name in chosen.items():
        before = model.get_submodule(layer)
        if name != "int8":
            layers[layer] = QatWeightsOnly(before, name, learns=learns)
            continue
        norm = model.get_submodule(norms[layer]) if layer in norms else None
        layers[layer] = output = QatInt8(before, ranges[layer], norm=norm, learns=learns)
        if layer in met:
            output.requantize_to(met[layer].requantization, ranges[min(met[layer].readers)])
    for norm_name in norms.values():
        replace_layer(model, norm_name, nn.Identity())
    for layer, new in layers.items():
        replace_layer(model, layer, new)
    return QatModel(model, layers, len(norms), learns)


def _ranges(
    spans: Mapping[str, Range], met: Iterable[Handover], *, learns: bool
) -> dict[str, LearnedRange]:
    """A range a layer; those that read the same values in int8 have one in common, and so go on
    reading the same.
    """
    ranges = {layer: LearnedRange(span, learns=learns) for layer, span in spans.items()}
    for handover in met:
        joined = {ranges[reader] for reader in handover.readers}
        shared = ranges[min(handover.readers)]
        ranges |= {layer: shared for layer, one in ranges.items() if one in joined}
    return ranges
