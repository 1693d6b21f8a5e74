"""Which dimension of a layer's weight is its output channels, and which weights belong to each
channel.
"""

from __future__ import annotations

from torch import Tensor, nn

from ...model.layers import TRANSPOSED_CONVOLUTIONS, channel_of
from ..subject import Layer


def output_dimension(module: nn.Module) -> int | None:
    """The dimension of the weight that indexes output channels; an embedding's is its width, not
    its vocabulary.
    """
    return 1 if isinstance(module, nn.Embedding) else channel_of(module)


def channel_count(layer: Layer) -> int:
    """The number of output channels of a layer."""
    return rows_of(layer, layer.weight).shape[0]


def rows_of(layer: Layer, values: Tensor) -> Tensor:
    """A tensor of the weight's shape, reshaped to one row for each output channel."""
    groups = getattr(layer.module, "groups", 1)
    if isinstance(layer.module, TRANSPOSED_CONVOLUTIONS) and groups > 1:
        # each group of inputs has output channels of its own
        grouped = values.reshape(groups, -1, *values.shape[1:])
        return grouped.transpose(1, 2).flatten(0, 1).flatten(1)
    return values.transpose(0, layer.channel).flatten(1)


def like_rows(layer: Layer, factors: Tensor) -> Tensor:
    """A factor for each output channel, reshaped to broadcast against the weight."""
    weight = layer.weight
    groups = getattr(layer.module, "groups", 1)
    if isinstance(layer.module, TRANSPOSED_CONVOLUTIONS) and groups > 1:
        per_input = (
            factors.reshape(groups, 1, -1).expand(-1, weight.shape[0] // groups, -1).flatten(0, 1)
        )
        return per_input.reshape(*per_input.shape, *(1,) * (weight.ndim - 2))
    return factors.reshape(
        [-1 if dimension == layer.channel else 1 for dimension in range(weight.ndim)]
    )
