"""The L2 norm of each channel's weights: needs neither data nor a loss."""

from __future__ import annotations

from torch import Tensor

from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import rows_of


class Magnitude(ChannelEstimator):
    """The square root of the sum of squared weights."""

    name = "magnitude"
    unit = "Length of a channel's weights (L2)."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        return {
            name: rows_of(layer, layer.weight).double().norm(dim=1)
            for name, layer in self.subject.layers.items()
        }
