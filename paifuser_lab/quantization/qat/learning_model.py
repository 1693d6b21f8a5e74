"""Put layers that learn to be whole numbers in the places of a model's own, and in theirs, when
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
from ..neighbours import Joint, joints
from ..place_layers import Calibration, seen, spans_of
from .int8 import LearningInt8
from .layer import LearningLayer
from .learned_ranges import LearnedRange
from .weights_only import LearningWeights


@dataclass(frozen=True)
class Learners:
    """The layers of a model that learn to be whole numbers, and its batch-norms, those inside such
    layers too.
    """

    model: nn.Module
    layers: Mapping[str, LearningLayer]
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
) -> Learners:
    """Put learning layers of the chosen formats in place, all of which have to be possible."""
    int8 = [layer for layer, name in chosen.items() if name == "int8"]
    norms = (
        {layer: norm for layer, norm in plan_fold(model, seen(work, model)).pairs if layer in int8}
        if int8
        else {}
    )
    folded = copy.deepcopy(model)
    fold(folded, norms.items())
    spans = spans_of(work, folded, int8, calibration)
    met = joints(seen(work, folded), spans) if int8 else {}
    ranges = _ranges(spans, met.values(), learns=learns)
    layers: dict[str, LearningLayer] = {}
    for layer, name in chosen.items():
        before = model.get_submodule(layer)
        if name != "int8":
            layers[layer] = LearningWeights(before, name, learns=learns)
            continue
        norm = model.get_submodule(norms[layer]) if layer in norms else None
        layers[layer] = made = LearningInt8(before, ranges[layer], norm=norm, learns=learns)
        if layer in met:
            made.hand_on(met[layer].outlet, ranges[min(met[layer].readers)])
    for norm_name in norms.values():
        replace_layer(model, norm_name, nn.Identity())
    for layer, new in layers.items():
        replace_layer(model, layer, new)
    return Learners(model, layers, len(norms), learns)


def _ranges(
    spans: Mapping[str, Range], met: Iterable[Joint], *, learns: bool
) -> dict[str, LearnedRange]:
    """A range a layer; those that read the same values in int8 have one in common, and so go on
    reading the same.
    """
    ranges = {layer: LearnedRange(span, learns=learns) for layer, span in spans.items()}
    for joint in met:
        joined = {ranges[reader] for reader in joint.readers}
        shared = ranges[min(joint.readers)]
        ranges |= {layer: shared for layer, one in ranges.items() if one in joined}
    return ranges
