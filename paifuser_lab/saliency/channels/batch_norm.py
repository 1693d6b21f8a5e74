"""The scale that the batch-norm behind a layer gives each of its channels; which one that is, is
seen by running the model.

Liu, Li, Shen, Huang, Yan, Zhang: "Learning Efficient Convolutional Networks through Network
Slimming", 2017.
"""

from __future__ import annotations

from torch import Tensor

from ...model.fold import NORMS
from ...model.graph import observe
from ..subject import Batch
from .estimator import ChannelEstimator
from .output_channels import channel_count


class BatchNormScale(ChannelEstimator):
    """|γ| of the batch-norm that reads what the layer gives; several are added up."""

    name = "batch-norm"
    unit = "Absolute scale of the batch-norm that follows, channel by channel."

    def values(self, batch: Batch) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for layer, scale in self._scales(batch):
            if len(scale) == channel_count(self.subject.layers[layer]):
                found[layer] = found[layer] + scale if layer in found else scale
        missing = self.subject.layers.keys() - found.keys()
        self.notes |= dict.fromkeys(missing, "no batch-norm with a scale a channel follows it")
        return found

    def _scales(self, batch: Batch) -> list[tuple[str, Tensor]]:
        """Layers, each with the scale of a batch-norm that reads what it gave."""
        model = self.subject.work.model
        graph = observe(model, lambda: self.subject.answer(batch))
        found = []
        for operation in graph.operations:
            norm = model.get_submodule(operation.layer)
            if (
                not isinstance(norm, NORMS)
                or norm.weight is None
                or "batch_norm" not in operation.name
            ):
                continue
            maker = graph.maker(operation.reads[0])
            if maker is not None and maker.layer in self.subject.layers:
                found.append((maker.layer, norm.weight.detach().abs()))
        return found
