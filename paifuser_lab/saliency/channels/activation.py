"""The mean absolute output of each channel on data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...model.watch import watching
from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import channel_count


class Activation(ChannelEstimator):
    """The mean of |output| over examples, positions and calls."""

    name = "activation"
    unit = "Mean absolute output of a channel."
    needs = "data"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        layers = self.subject.layers
        means: dict[str, list[Tensor]] = {name: [] for name in layers}

        def leave(name: str, output: Any) -> None:
            if name not in layers or not isinstance(output, Tensor) or not output.numel():
                return
            # the last dimension; of a convolution, the one before the spatial ones
            spatial = len(getattr(layers[name].module, "kernel_size", ()))
            dimension = output.ndim - spatial - 1 if spatial else output.ndim - 1
            if output.shape[dimension] == channel_count(layers[name]):
                values = output.detach().abs().double().movedim(dimension, 0)
                means[name].append(values.flatten(1).mean(1))

        with watching(self.subject.work.model, lambda name, args, kwargs: None, leave):
            self.subject.checked_output(batch)
        never = {name for name, calls in means.items() if not calls}
        self.notes |= dict.fromkeys(never, "it never ran on a batch, or returned no tensor")
        return {name: torch.stack(calls).mean(0) for name, calls in means.items() if calls}
