"""The kind of a layer: which dimension of its weight is its channels, what else its call does, and
which layers own a weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from torch import nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
SEQUENCE_CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d)  # with channels before positions
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

CHANNEL_OF: dict[type[nn.Module], int] = {
    nn.Linear: 0,
    **dict.fromkeys(CONVOLUTIONS, 0),
    **dict.fromkeys(TRANSPOSED_CONVOLUTIONS, 1),
    nn.Embedding: 0,
}


def channel_of(layer: nn.Module) -> int | None:
    """Which dimension of a weight is output channels; None for layers without one to quantize."""
    for kind, channel in CHANNEL_OF.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return channel
    return 1 if is_transposed_linear(layer) else None


def is_transposed_linear(layer: nn.Module) -> bool:
    """Whether it is a linear layer with a weight of (inputs, outputs): transformers' Conv1D, of
    GPT-2.
    """
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def is_linear(layer: nn.Module) -> bool:
    """Whether it multiplies the last dimension by a matrix, in either storage order."""
    return isinstance(layer, nn.Linear) or is_transposed_linear(layer)


def is_pointwise(layer: nn.Module) -> bool:
    """Whether it is a 1×1 convolution in one group: a linear layer at each position."""
    if not isinstance(layer, CONVOLUTIONS) or layer.groups != 1:
        return False
    ones = {*layer.kernel_size, *layer.stride, *layer.dilation}
    return ones == {1} and layer.padding in ("valid", "same", (0,) * len(layer.kernel_size))


def has_hooks(layer: nn.Module) -> bool:
    """Whether the layer has forward hooks or forward pre-hooks."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def is_altered(layer: nn.Module) -> bool:
    """Whether a call does more than the layer's class: by hooks or parametrizations."""
    return has_hooks(layer) or hasattr(layer, "parametrizations")


def owners_of_weights(model: nn.Module) -> dict[int, list[str]]:
    """The layers that own each weight, by the weight's id; a tied weight has several."""
    owners: dict[int, list[str]] = defaultdict(list)
    for name, layer in model.named_modules():
        for weight in layer.parameters(recurse=False):
            owners[id(weight)].append(name)
    return owners


def tied_layers(model: nn.Module, among: Collection[str] | None = None) -> list[list[str]]:
    """The layers that share the `weight` of one of them; all, or those among the named ones."""
    weights = {id(layer._parameters.get("weight")) for layer in model.modules()}
    groups = (
        [layer for layer in dict.fromkeys(owners) if among is None or layer in among]
        for weight, owners in owners_of_weights(model).items()
        if weight in weights
    )
    return [layers for layers in groups if len(layers) > 1]
