"""First and second order of the loss as a channel's weights become 0: |−g·w + ½ wᵀHw|, H the
Hessian among its own weights.

A product of the Hessian with all of a layer's weights mixes channels. With the sign of each channel
drawn at random, what other channels add is 0 on the average over batches, so that one product a
batch serves all channels of a layer; a layer of few channels is done exactly, with a product a
channel. Changes are averaged with their signs, and their size is taken at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Slope, slope
from ..probes import signs
from ..subject import Batch, Layer, Subject
from .estimator import ChannelEstimator, layer_seed
from .output_channels import channel_count, like_rows, rows_of

EXACTLY = 4  # channels


class Taylor2(ChannelEstimator):
    """What the loss is predicted to change by, to second order."""

    name = "taylor2"
    unit = (
        "What the loss is predicted to change by when a channel's weights are removed, to second "
        "order, in absolute value."
    )
    needs = "loss"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generators = {
            name: torch.Generator().manual_seed(layer_seed(subject, name))
            for name in subject.layers
        }

    def values(self, batch: Batch) -> dict[str, Tensor]:
        along = slope(self.subject, batch, self.subject.layers)
        return {name: self._change(along, layer) for name, layer in self.subject.layers.items()}

    def _change(self, along: Slope, layer: Layer) -> Tensor:
        first = rows_of(layer, along.gradients[layer.name][0].detach() * layer.weight).sum(1)
        bends = [
            rows_of(layer, moved * along.product(layer.name, moved)).sum(1)
            for moved in self._moves(layer)
        ]
        return torch.stack(bends).sum(0) / 2 - first

    def _moves(self, layer: Layer) -> list[Tensor]:
        """The weights of each channel alone, or those of all channels with signs."""
        count = channel_count(layer)
        alone = list(torch.eye(count).to(layer.weight)) if count <= EXACTLY else []
        factors = alone or [signs(layer.weight.new_empty(count), self.generators[layer.name])]
        return [like_rows(layer, one) * layer.weight for one in factors]
