"""Random numbers: the control that every other way has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from ..subject import Batch
from .estimator import ChannelJudge
from .output_channels import channel_count


class Chance(ChannelJudge):
    """Evenly drawn between 0 and 1."""

    name = "random"
    unit = "Drawn at random, as the control."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.subject.seed)
        return {
            name: torch.rand(channel_count(layer), generator=generator)
            for name, layer in self.subject.layers.items()
        }
