"""The base class of layer estimators: the mean of their samples is a layer's score in a format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ...records import Curvature, Estimate, Sensitivity
from ...records.sensitivity import Unit
from ..subject import Batch, Key, Subject


class Estimator:
    """A new estimator is a subclass, and one line in the registry.

    Samples are drawn batch after batch, until the mean of every key has the requested standard
    error.
    """

    name: ClassVar[str]
    unit: ClassVar[Unit] = "loss"
    needs_loss: ClassVar[bool] = True
    most_samples: ClassVar[int | None] = None  # of a key; None: one for each batch
    most_examples: ClassVar[int | None] = None  # of a batch; None: all
    is_by_format: ClassVar[bool] = True  # else a key is a layer itself

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.notes: list[str] = []

    @property
    def keys(self) -> list[Key]:
        """The keys to estimate: each layer in each format, or each layer."""
        formats = self.subject.formats if self.is_by_format else ("",)
        return [Key(layer, name) for layer in self.subject.layers for name in formats]

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        """Draw a sample of each key from one batch."""
        raise NotImplementedError(f"'{self.name}' draws no samples; define samples(batch, keys)")

    def scores(self, means: Mapping[Key, Estimate]) -> dict[Key, Estimate]:
        """The score of each layer in each format, from the means."""
        return dict(means)

    def curvatures(self, means: Mapping[Key, Estimate]) -> dict[str, Curvature]:
        """The curvature of each layer, from the means."""
        return {}

    def earlier(self, record: Sensitivity) -> dict[Key, Estimate]:
        """The means that an earlier record holds."""
        return {
            Key(row.layer, name): by_method[self.name]
            for row in record.rows
            for name, by_method in row.scores.items()
            if self.name in by_method
        }


def layers_of(keys: list[Key]) -> list[str]:
    """The layers of these keys, each once."""
    return list(dict.fromkeys(key.layer for key in keys))
