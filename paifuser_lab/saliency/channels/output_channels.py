"""Which dimension of a layer's weight is its output channels, and which of its numbers belong to
each.
"""

from __future__ import annotations

from torch import Tensor, nn

from ...errors import MeasureError
from ...model.layers import TRANSPOSED_CONVOLUTIONS, channel_of
from ...workload import Workload
from ..subject import Layer


def channel_layers(work: Workload) -> list[tuple[str, nn.Module]]:
    """Every layer of a kind that has output channels."""
    found = [
        (name, module)
        for name, module in work.model.named_modules()
        if output_dimension(module) is not None
    ]
    if not found:
        raise MeasureError(
            f"{work.name} has no layer with output channels; it takes a linear layer, a "
            "convolution or an embedding."
        )
    return found


def output_dimension(module: nn.Module) -> int | None:
    """The dimension of the weight that has an entry an output channel; an embedding's is its width,
    not its words.
    """
    return 1 if isinstance(module, nn.Embedding) else channel_of(module)


def channel_count(layer: Layer) -> int:
    """How many output channels a layer has."""
    return rows_of(layer, layer.weight).shape[0]


def rows_of(layer: Layer, values: Tensor) -> Tensor:
    """What has a weight's shape, as a row an output channel."""
    groups = getattr(layer.module, "groups", 1)
    if isinstance(layer.module, TRANSPOSED_CONVOLUTIONS) and groups > 1:
        apart = values.reshape(
            groups, -1, *values.shape[1:]
        )  # each group of inputs has output channels of its own
        return apart.transpose(1, 2).flatten(0, 1).flatten(1)
    return values.transpose(0, layer.channel).flatten(1)


def like_rows(layer: Layer, factors: Tensor) -> Tensor:
    """A factor an output channel, in a shape that multiplies the weight."""
    weight = layer.weight
    groups = getattr(layer.module, "groups", 1)
    if isinstance(layer.module, TRANSPOSED_CONVOLUTIONS) and groups > 1:
        per_input = (
            factors.reshape(groups, 1, -1).expand(-1, weight.shape[0] // groups, -1).flatten(0, 1)
        )
        return per_input.reshape(*per_input.shape, *(1,) * (weight.ndim - 2))
    return factors.reshape([-1 if place == layer.channel else 1 for place in range(weight.ndim)])
