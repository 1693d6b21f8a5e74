"""The first-order change of the loss when a channel's weights become 0.

It is |Σ g·w| over the weights of a channel, batch by batch, and the mean over batches: the
importance of a set of parameters whose contributions are added before the absolute value is taken.
Molchanov, Mallya, Tyree, Frosio, Kautz: "Importance Estimation for Neural Network Pruning", 2019.
"""

from __future__ import annotations

from torch import Tensor

from ..curvature import gradients
from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import rows_of


class Taylor(ChannelEstimator):
    """|Σ g·w| over a channel's weights."""

    name = "taylor"
    unit = (
        "Slope of the loss times weight, added up over a channel, in absolute value: first order "
        "of what removing it changes."
    )
    needs = "loss"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        layers = self.subject.layers
        return {
            name: rows_of(layers[name], slope * layers[name].weight).sum(1).abs()
            for name, slope in gradients(self.subject, batch, layers).items()
        }
