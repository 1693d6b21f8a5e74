"""Values from gradients of the loss: what removing a channel's weights is predicted to change."""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Slope, gradients, slope
from ..methods.fisher import EXAMPLES, one_by_one
from ..probes import signs
from ..subject import Batch, Layer, Subject
from .estimator import ChannelEstimator, generator_of
from .output_channels import channel_count, like_rows, rows_of

MAX_EXACT = 4  # channels, each with a product of its own


class Taylor(ChannelEstimator):
    """The first-order change of the loss when a channel's weights become 0.

    It is |Σ g·w| over the weights of a channel, batch by batch, and the mean over batches: the
    importance of a set of parameters whose contributions are added before the absolute value is
    taken. Molchanov, Mallya, Tyree, Frosio, Kautz: "Importance Estimation for Neural Network
    Pruning", 2019.
    """

    name = "taylor"
    unit = (
        "Slope of the loss times weight, added up over a channel, in absolute value: first order "
        "of what removing it changes."
    )
    needs = "loss"

    def values(self, batch: Batch) -> dict[str, Tensor]:
        layers = self.subject.layers
        return {
            name: rows_of(layers[name], gradient * layers[name].weight).sum(1).abs()
            for name, gradient in gradients(self.subject, batch, layers).items()
        }


class Taylor2(ChannelEstimator):
    """First and second order of the loss as a channel's weights become 0: |−g·w + ½ wᵀHw|, H the
    Hessian among the channel's own weights.

    A product of the Hessian with all of a layer's weights mixes channels. With a random sign for
    each channel, the contribution of other channels is 0 on average over batches, so one product
    for each batch serves all channels of a layer; a layer of few channels is computed exactly, with
    a product for each channel. Changes are averaged with their signs; the absolute value is taken
    at the end.
    """

    name = "taylor2"
    unit = (
        "What the loss is predicted to change by when a channel's weights are removed, to second "
        "order, in absolute value."
    )
    needs = "loss"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generators = {name: generator_of(subject, name) for name in subject.layers}

    def values(self, batch: Batch) -> dict[str, Tensor]:
        loss_slope = slope(self.subject, batch, self.subject.layers)
        return {
            name: self._change(loss_slope, layer) for name, layer in self.subject.layers.items()
        }

    def _change(self, loss_slope: Slope, layer: Layer) -> Tensor:
        first = rows_of(layer, loss_slope.gradients[layer.name][0].detach() * layer.weight).sum(1)
        curvatures = [
            rows_of(layer, direction * loss_slope.product(layer.name, direction)).sum(1)
            for direction in self._directions(layer)
        ]
        return torch.stack(curvatures).sum(0) / 2 - first

    def _directions(self, layer: Layer) -> list[Tensor]:
        """The weights of each channel alone, or those of all channels with random signs."""
        count = channel_count(layer)
        one_hot = list(torch.eye(count).to(layer.weight)) if count <= MAX_EXACT else []
        factors = one_hot or [signs(layer.weight.new_empty(count), self.generators[layer.name])]
        return [like_rows(layer, factor) * layer.weight for factor in factors]


class ChannelFisher(ChannelEstimator):
    """The Fisher information of a gate in front of each channel: ½ E[(g·w)²], the expected rise of
    the loss at convergence.

    Gradients are taken one example at a time, of a few examples in each batch. Theis, Korshunova,
    Tejani, Huszár: "Faster gaze prediction with dense networks and Fisher pruning", 2018.
    """

    name = "fisher"
    unit = (
        "Half the squared slope of the loss along a channel's weights, averaged over examples: the "
        "Fisher information of a gate."
    )
    needs = "loss"
    most_examples = EXAMPLES

    def values(self, batch: Batch) -> dict[str, Tensor]:
        layers = self.subject.layers
        values: dict[str, Tensor] = {}
        examples = one_by_one(batch)[:EXAMPLES]
        for example in examples:
            for name, gradient in gradients(self.subject, example, layers).items():
                along = rows_of(layers[name], gradient * layers[name].weight).sum(1).square() / (
                    2 * len(examples)
                )
                values[name] = values[name] + along if name in values else along
        return values
