"""How large what comes out of a channel is, on data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import channel_count


class Activation(ChannelEstimator):
    """The mean of |output|, over examples, places and calls."""

    name = "activation"
    unit = "Mean absolute output of a channel."
    needs = "data"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        seen: dict[str, list[Tensor]] = {}
        with ExitStack() as hooks:
            for name, layer in self.subject.layers.items():
                handle = layer.module.register_forward_hook(
                    _watcher(seen.setdefault(name, []), channel_count(layer))
                )
                hooks.callback(handle.remove)
            self.subject.plain_answer(batch)
        never = {name for name, outputs in seen.items() if not outputs}
        self.notes |= dict.fromkeys(never, "it never ran on a batch, or gave no tensor")
        return {
            name: sum(outputs[1:], outputs[0]) / len(outputs)
            for name, outputs in seen.items()
            if outputs
        }


def _watcher(seen: list[Tensor], channels: int) -> Callable[[nn.Module, Any, Any], None]:
    def watch(layer: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.numel():
            dimension = _channel_dimension(layer, output)
            if output.shape[dimension] == channels:
                seen.append(output.detach().abs().double().movedim(dimension, 0).flatten(1).mean(1))

    return watch


def _channel_dimension(layer: nn.Module, output: Tensor) -> int:
    """The last, but of a convolution the one before the places."""
    places = len(getattr(layer, "kernel_size", ()))
    return output.ndim - places - 1 if places else output.ndim - 1
