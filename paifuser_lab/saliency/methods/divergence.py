"""The change of the class probabilities with one layer rounded: Kullback-Leibler divergence. Needs
no labels.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.nn import functional as F

from ..class_scores import log_probabilities
from ..subject import Batch, Key
from .estimator import Estimator


class Divergence(Estimator):
    """From the unchanged model to the one with the layer rounded, a mean over examples."""

    name = "divergence"
    unit = "output error"
    needs_loss = False

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        self.subject.checked_output(batch)
        before = self._log_probabilities(batch)
        for key in keys:
            with self.subject.rounded(key):
                after = self._log_probabilities(batch)
            yield key, float(F.kl_div(after, before, reduction="batchmean", log_target=True))

    def _log_probabilities(self, batch: Batch) -> Tensor:
        return log_probabilities(self.subject, batch, needed_for=self.name).double()
