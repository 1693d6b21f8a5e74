"""The scale that the batch-norm after a layer gives each of its channels; which batch-norm that is,
is read from one run of the model.

Liu, Li, Shen, Huang, Yan, Zhang: "Learning Efficient Convolutional Networks through Network
Slimming", 2017.
"""

from __future__ import annotations

from torch import Tensor

from ...model.graph import observe
from ...model.layers import BATCH_NORMS
from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import channel_count


class BatchNormScale(ChannelEstimator):
    """|γ| of the batch-norm that reads the layer's output; several are added up."""

    name = "batch-norm"
    unit = "Absolute scale of the batch-norm that follows, channel by channel."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        model, layers = self.subject.work.model, self.subject.layers
        graph = observe(model, lambda: self.subject.output(batch))
        scales: dict[str, Tensor] = {}
        for operation in graph.operations:
            norm = model.get_submodule(operation.layer)
            if (
                not isinstance(norm, BATCH_NORMS)
                or norm.weight is None
                or "batch_norm" not in operation.name
            ):
                continue
            maker, scale = graph.maker(operation.reads[0]), norm.weight.detach().abs()
            if maker is None or maker.layer not in layers:
                continue
            if len(scale) == channel_count(layers[maker.layer]):
                scales[maker.layer] = scales.get(maker.layer, 0.0) + scale
        missing = layers.keys() - scales.keys()
        self.notes |= dict.fromkeys(missing, "no batch-norm with a scale per channel follows it")
        return scales
