"""The first order of the loss: how much it can change at most, by its slope, when a channel's
weights become 0.

Molchanov, Mallya, Tyree, Frosio, Kautz: "Importance Estimation for Neural Network Pruning", 2019.
"""

from __future__ import annotations

from torch import Tensor

from ..subject import Batch
from .estimator import ChannelJudge, gradients
from .output_channels import rows_of


class Taylor(ChannelJudge):
    """|g·w| of each weight, added up over a channel."""

    name = "taylor"
    unit = (
        "Slope of the loss times weight, in absolute value, added up over a channel: first order "
        "of what removing it changes."
    )
    needs = "loss"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        layers = self.subject.layers
        return {
            name: rows_of(layers[name], slope * layers[name].weight).abs().sum(1)
            for name, slope in gradients(self.subject, batch).items()
        }
