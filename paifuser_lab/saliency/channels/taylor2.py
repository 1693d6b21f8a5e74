"""First and second order of the loss as a channel's weights become 0: |−g·w + ½ wᵀHw|, H the
Hessian among the channel's own weights.

A product of the Hessian with all of a layer's weights mixes channels. With a random sign for each
channel, the contribution of other channels is 0 on average over batches, so one product for each
batch serves all channels of a layer; a layer of few channels is computed exactly, with a product
for each channel. Changes are averaged with their signs; the absolute value is taken at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Slope, slope
from ..probes import signs
from ..subject import Batch, Layer, Subject
from .estimator import ChannelEstimator, generator_of
from .output_channels import channel_count, like_rows, rows_of

MAX_EXACT = 4  # channels, each with a product of its own


class Taylor2(ChannelEstimator):
    """The predicted change of the loss, to second order."""

    name = "taylor2"
    unit = (
        "What the loss is predicted to change by when a channel's weights are removed, to second "
        "order, in absolute value."
    )
    needs = "loss"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generators = {name: generator_of(subject, name) for name in subject.layers}

    def values(self, batch: Batch) -> dict[str, Tensor]:
        loss_slope = slope(self.subject, batch, self.subject.layers)
        return {
            name: self._change(loss_slope, layer) for name, layer in self.subject.layers.items()
        }

    def _change(self, loss_slope: Slope, layer: Layer) -> Tensor:
        first = rows_of(layer, loss_slope.gradients[layer.name][0].detach() * layer.weight).sum(1)
        curvatures = [
            rows_of(layer, direction * loss_slope.product(layer.name, direction)).sum(1)
            for direction in self._directions(layer)
        ]
        return torch.stack(curvatures).sum(0) / 2 - first

    def _directions(self, layer: Layer) -> list[Tensor]:
        """The weights of each channel alone, or those of all channels with random signs."""
        count = channel_count(layer)
        one_hot = list(torch.eye(count).to(layer.weight)) if count <= MAX_EXACT else []
        factors = one_hot or [signs(layer.weight.new_empty(count), self.generators[layer.name])]
        return [like_rows(layer, factor) * layer.weight for factor in factors]
