"""The reference for the other methods: the loss's rise, measured with one layer rounded."""

from __future__ import annotations

from collections.abc import Iterator

from ..subject import Batch, Key
from .estimator import Estimator


class Ablation(Estimator):
    """Each batch runs unchanged and with the layer rounded, so that differences between batches
    cancel.
    """

    name = "ablation"

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        before = self.subject.checked_loss(batch)
        for key in keys:
            with self.subject.rounded(key):
                yield key, float(self.subject.loss(batch)) - before
