"""Values that need neither data nor a loss: of the weights, of the batch-norm that follows, and the
control.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...model.graph import observe
from ...model.layers import BATCH_NORMS
from ..subject import Batch
from .estimator import ChannelEstimator, generator_of
from .output_channels import channel_count, rows_of


class Magnitude(ChannelEstimator):
    """The square root of the sum of squared weights."""

    name = "magnitude"
    unit = "Length of a channel's weights (L2)."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        return {
            name: rows_of(layer, layer.weight).double().norm(dim=1)
            for name, layer in self.subject.layers.items()
        }


class BatchNormScale(ChannelEstimator):
    """|γ| of the batch-norm that reads the layer's output; several are added up. Which batch-norm
    that is, is read from one run of the model.

    Liu, Li, Shen, Huang, Yan, Zhang: "Learning Efficient Convolutional Networks through Network
    Slimming", 2017.
    """

    name = "batch-norm"
    unit = "Absolute scale of the batch-norm that follows, channel by channel."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        model, layers = self.subject.work.model, self.subject.layers
        graph = observe(model, lambda: self.subject.output(batch))
        scales: dict[str, Tensor] = {}
        for operation in graph.operations:
            norm = model.get_submodule(operation.layer)
            if (
                not isinstance(norm, BATCH_NORMS)
                or norm.weight is None
                or "batch_norm" not in operation.name
            ):
                continue
            maker, scale = graph.maker(operation.reads[0]), norm.weight.detach().abs()
            if maker is None or maker.layer not in layers:
                continue
            if len(scale) == channel_count(layers[maker.layer]):
                scales[maker.layer] = scales.get(maker.layer, 0.0) + scale
        missing = layers.keys() - scales.keys()
        self.notes |= dict.fromkeys(missing, "no batch-norm with a scale per channel follows it")
        return scales


class RandomScores(ChannelEstimator):
    """Uniformly distributed between 0 and 1: the control that every other estimator has to beat."""

    name = "random"
    unit = "Drawn at random, as the control."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        return {
            name: torch.rand(channel_count(layer), generator=generator_of(self.subject, name))
            for name, layer in self.subject.layers.items()
        }
