"""What a way of judging layers is: it gives samples, whose mean says how much each layer in each
format matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ...records import Curvature, Estimate, Sensitivity
from ...records.sensitivity import Unit
from ..subject import Batch, Key, Subject


class Estimator:
    """A way of judging. A new one is one file with one subclass, and one line in the registry.

    It is asked for samples, batch after batch, until the mean of every key is known well enough.
    """

    name: ClassVar[str]
    unit: ClassVar[Unit] = "loss"
    needs_loss: ClassVar[bool] = True
    most_samples: ClassVar[int | None] = None  # of a key; one a batch unless said otherwise

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.notes: list[str] = []

    @property
    def keys(self) -> list[Key]:
        """What it estimates: each layer in each format."""
        return self.subject.keys

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        """A sample of each key from one batch, one after another."""
        raise NotImplementedError(
            f"'{self.name}' does not say how it samples; define samples(batch, keys)"
        )

    def scores(self, found: Mapping[Key, Estimate]) -> dict[Key, Estimate]:
        """What the means say of each layer in each format."""
        return dict(found)

    def curvatures(self, found: Mapping[Key, Estimate]) -> dict[str, Curvature]:
        """What the means say of each layer's curvature."""
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
    """The layers that they speak of, each once."""
    return list(dict.fromkeys(key.layer for key in keys))
