"""Random scores: the control that every other estimator has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from ..subject import Batch
from .estimator import ChannelEstimator, generator_of
from .output_channels import channel_count


class RandomScores(ChannelEstimator):
    """Uniformly distributed between 0 and 1."""

    name = "random"
    unit = "Drawn at random, as the control."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        return {
            name: torch.rand(channel_count(layer), generator=generator_of(self.subject, name))
            for name, layer in self.subject.layers.items()
        }
