"""The relative L2 error of the output with one layer rounded; needs neither labels nor a loss."""

from __future__ import annotations

from collections.abc import Iterator

from ...measure import output_error
from ..subject import Batch, Key
from .estimator import Estimator


class Output(Estimator):
    """The output of the unchanged model against that with the layer rounded."""

    name = "output"
    unit = "output error"
    needs_loss = False

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        before = self.subject.checked_output(batch)
        for key in keys:
            with self.subject.rounded(key):
                yield key, output_error(before, self.subject.output(batch))[0]
