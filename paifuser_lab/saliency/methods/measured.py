"""What rounding one layer does, measured: each batch runs unchanged and with the layer rounded, so
that differences between batches cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import MeasureError
from ...measure import output_error
from ...model.tensors import tensors_in
from ..subject import Batch, Key, Subject
from .estimator import Estimator


class Ablation(Estimator):
    """The rise of the loss: the reference for the other methods."""

    name = "ablation"

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        before = self.subject.checked_loss(batch)
        for key in keys:
            with self.subject.rounded(key):
                yield key, float(self.subject.loss(batch)) - before


class Output(Estimator):
    """The relative L2 error of the output; needs neither labels nor a loss."""

    name = "output"
    unit = "output error"
    needs_loss = False

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        before = self.subject.checked_output(batch)
        for key in keys:
            with self.subject.rounded(key):
                yield key, output_error(before, self.subject.output(batch))[0]


class Divergence(Estimator):
    """The Kullback-Leibler divergence of the probabilities, a mean over examples; needs no
    labels.
    """

    name = "divergence"
    unit = "output error"
    needs_loss = False

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        self.subject.checked_output(batch)
        before = log_probabilities(self.subject, batch)
        for key in keys:
            with self.subject.rounded(key):
                after = log_probabilities(self.subject, batch)
            yield key, float(F.kl_div(after, before, reduction="batchmean", log_target=True))


def log_probabilities(subject: Subject, batch: Batch) -> Tensor:
    """The model's log-probabilities of classes; a row for each example (or pixel, or token), a
    column for each class.
    """
    output = subject.output(batch)
    scores = _logits(output)
    if scores is None or scores.ndim < 2:
        shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
        raise _no_scores(subject, f"its output is a {type(output).__name__}{shape}")
    target = batch.target
    if isinstance(target, Tensor) and (
        target.is_floating_point() or target.ndim != scores.ndim - 1
    ):
        kind = f"{target.dtype} of shape {tuple(target.shape)}".removeprefix("torch.")
        raise _no_scores(subject, f"its targets are {kind}, not classes")
    dimension = _class_dimension(scores, target)
    return torch.log_softmax(scores.movedim(dimension, -1).flatten(0, -2), dim=-1).double()


def _class_dimension(scores: Tensor, target: Any) -> int:
    """The dimension that a target of classes lacks; without such a target, the second for images
    and the last for sequences.
    """
    if isinstance(target, Tensor) and target.shape == scores.shape[:-1]:
        return -1
    return -1 if scores.ndim == 3 and not isinstance(target, Tensor) else 1


def _logits(output: Any) -> Tensor | None:
    """The output itself, its item named 'logits', or its first floating-point tensor."""
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]  # type: ignore[no-any-return]
    return next((leaf for leaf in tensors_in(output) if leaf.is_floating_point()), None)


def _no_scores(subject: Subject, why: str) -> MeasureError:
    return MeasureError(
        f"'{Divergence.name}' needs class scores and {subject.work.name} outputs none ({why}); use "
        "'output' or 'quadratic'."
    )
