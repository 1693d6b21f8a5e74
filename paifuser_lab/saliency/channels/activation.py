"""The mean absolute output of each channel on data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import channel_count


class Activation(ChannelEstimator):
    """The mean of |output| over examples, positions and calls."""

    name = "activation"
    unit = "Mean absolute output of a channel."
    needs = "data"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        outputs_of: dict[str, list[Tensor]] = {}
        with ExitStack() as hooks:
            for name, layer in self.subject.layers.items():
                handle = layer.module.register_forward_hook(
                    _watcher(outputs_of.setdefault(name, []), channel_count(layer))
                )
                hooks.callback(handle.remove)
            self.subject.checked_output(batch)
        never = {name for name, outputs in outputs_of.items() if not outputs}
        self.notes |= dict.fromkeys(never, "it never ran on a batch, or returned no tensor")
        return {
            name: sum(outputs[1:], outputs[0]) / len(outputs)
            for name, outputs in outputs_of.items()
            if outputs
        }


def _watcher(means: list[Tensor], channels: int) -> Callable[[nn.Module, Any, Any], None]:
    def watch(layer: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.numel():
            dimension = _channel_dimension(layer, output)
            if output.shape[dimension] == channels:
                means.append(
                    output.detach().abs().double().movedim(dimension, 0).flatten(1).mean(1)
                )

    return watch


def _channel_dimension(layer: nn.Module, output: Tensor) -> int:
    """The last dimension; for a convolution, the one before the spatial dimensions."""
    spatial = len(getattr(layer, "kernel_size", ()))
    return output.ndim - spatial - 1 if spatial else output.ndim - 1
