"""What a way of judging channels is: for a batch, a value an output channel of each layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..curvature import gradient
from ..subject import Batch, Subject

Need = Literal["nothing", "data", "loss"]


class ChannelJudge:
    """A new way of judging says what it needs and what its values are, and gives them for a batch;
    `notes` are for the record. The size is taken of the mean over batches, so that values may have
    signs.

    What needs nothing is asked once, with the example inputs.
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # a sentence
    needs: ClassVar[Need] = "nothing"

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.notes: dict[str, str] = {}  # layer → why it has no values

    def values(self, batch: Batch) -> dict[str, Tensor]:
        """By layer; those that are left out have a note."""
        raise NotImplementedError(f"'{self.name}' does not say how it judges; define values(batch)")


def gradients(subject: Subject, batch: Batch) -> dict[str, Tensor]:
    """The loss's gradient in each layer's weight; the parameters' own gradients are left alone."""
    weights = {name: layer.weight.requires_grad_() for name, layer in subject.layers.items()}
    with torch.enable_grad(), subject.changed(weights, {}):
        loss = subject.loss(batch)
        subject.checked(loss, batch)
        found = gradient(subject.work.name, loss, list(weights.values()))
    return dict(zip(weights, found, strict=True))
