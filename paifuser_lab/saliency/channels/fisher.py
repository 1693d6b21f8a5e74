"""The Fisher information of a gate in front of each channel: ½ E[(g·w)²], the expected rise of the
loss at convergence.

Gradients are taken one example at a time, of a few examples in each batch. Theis, Korshunova,
Tejani, Huszár: "Faster gaze prediction with dense networks and Fisher pruning", 2018.
"""

from __future__ import annotations

from torch import Tensor

from ..curvature import gradients
from ..methods.fisher import EXAMPLES, one_by_one
from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import rows_of


class ChannelFisher(ChannelEstimator):
    """The slope along a channel's weights, squared and averaged over examples."""

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
            for name, slope in gradients(self.subject, example, layers).items():
                along = rows_of(layers[name], slope * layers[name].weight).sum(1).square() / (
                    2 * len(examples)
                )
                values[name] = values[name] + along if name in values else along
        return values
