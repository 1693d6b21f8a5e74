"""The base class of channel estimators: for a batch, a value for each channel of each layer."""

from __future__ import annotations

import zlib
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..subject import Batch, Subject

Need = Literal["nothing", "data", "loss"]


class ChannelEstimator:
    """A new estimator declares what it needs and the unit of its values, and computes them for a
    batch; `notes` go into the record. The absolute value is taken of the mean over batches, so
    values may have signs.

    An estimator that needs nothing is called once, with the example inputs.
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # what a value is, as a sentence
    needs: ClassVar[Need] = "nothing"
    most_examples: ClassVar[int | None] = None  # of a batch; None: all

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.notes: dict[str, str] = {}  # layer → why it has no values

    def values(self, batch: Batch) -> dict[str, Tensor]:
        """Values by layer; a layer without values has a note."""
        raise NotImplementedError(f"'{self.name}' computes no values; define values(batch)")


def generator_of(subject: Subject, layer: str) -> torch.Generator:
    """Random numbers for one layer, independent of which other layers are estimated."""
    seed = zlib.crc32(layer.encode()) ^ (subject.seed & 0xFFFFFFFF)
    return torch.Generator().manual_seed(seed)
