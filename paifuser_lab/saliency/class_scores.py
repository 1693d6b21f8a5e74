"""Find the class scores in a model's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import MeasureError
from .subject import Batch, Subject


def log_probabilities(subject: Subject, batch: Batch, *, needed_for: str) -> Tensor:
    """The model's log-probabilities of classes; a row for each example (or pixel, or token), a
    column for each class.
    """
    output = subject.output(batch)
    scores = _logits(output)
    if scores is None or scores.ndim < 2:
        shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
        raise _no_scores(subject, needed_for, f"its output is a {type(output).__name__}{shape}")
    target = batch.target
    if isinstance(target, Tensor) and (
        target.is_floating_point() or target.ndim != scores.ndim - 1
    ):
        kind = f"{target.dtype} of shape {tuple(target.shape)}".removeprefix("torch.")
        raise _no_scores(subject, needed_for, f"its targets are {kind}, not classes")
    dimension = _class_dimension(scores, target)
    return torch.log_softmax(scores.movedim(dimension, -1).flatten(0, -2), dim=-1)


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
    tensors = (
        leaf
        for leaf in pytree.tree_leaves(output)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    )
    return next(tensors, None)


def _no_scores(subject: Subject, needed_for: str, why: str) -> MeasureError:
    return MeasureError(
        f"'{needed_for}' needs class scores and {subject.work.name} outputs none ({why}); use "
        "'output' or 'quadratic'."
    )
