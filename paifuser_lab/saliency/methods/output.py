"""How far the answer moves with one layer rounded: relative L2 error. Needs neither labels nor a
loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...measure import output_error
from ..subject import Batch, Key
from .estimator import Estimator


class Output(Estimator):
    """The answer of the model as it is, against the one with the layer rounded."""

    name = "output"
    unit = "output error"
    needs_loss = False

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        before = self.subject.plain_answer(batch)
        for key in keys:
            with self.subject.rounded(key):
                yield key, output_error(before, self.subject.answer(batch))[0]
