"""Where in a model's answer the scores of classes are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import MeasureError
from .subject import Batch, Subject


def log_probabilities(subject: Subject, batch: Batch, *, needed_for: str) -> Tensor:
    """What a model says of each class, as logarithms; a row an example (or pixel, or token), a
    column a class.
    """
    answer = subject.answer(batch)
    scores = _logits(answer)
    if scores is None or scores.ndim < 2:
        raise _no_scores(subject, needed_for, f"its answer is {_described(answer)}")
    target = batch.target
    if isinstance(target, Tensor) and (
        target.is_floating_point() or target.ndim != scores.ndim - 1
    ):
        kind = f"{target.dtype} of shape {tuple(target.shape)}".removeprefix("torch.")
        raise _no_scores(subject, needed_for, f"its targets are {kind}, no classes")
    dimension = _class_dimension(scores, target)
    return torch.log_softmax(scores.movedim(dimension, -1).flatten(0, -2), dim=-1)


def _class_dimension(scores: Tensor, target: Any) -> int:
    """The one that a target of classes lacks; without such a target the second for images, the last
    for sequences.
    """
    if isinstance(target, Tensor) and target.shape == scores.shape[:-1]:
        return -1
    return -1 if scores.ndim == 3 and not isinstance(target, Tensor) else 1


def _logits(answer: Any) -> Tensor | None:
    """The answer itself, or its part of that name, or its first numbers."""
    if isinstance(answer, Mapping) and isinstance(answer.get("logits"), Tensor):
        return answer["logits"]  # type: ignore[no-any-return]
    tensors = (
        leaf
        for leaf in pytree.tree_leaves(answer)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    )
    return next(tensors, None)


def _described(answer: Any) -> str:
    return (
        f"a tensor of shape {tuple(answer.shape)}"
        if isinstance(answer, Tensor)
        else f"a {type(answer).__name__}"
    )


def _no_scores(subject: Subject, needed_for: str, why: str) -> MeasureError:
    return MeasureError(
        f"'{needed_for}' needs scores of classes and {subject.work.name} gives none ({why}); ask "
        "for 'output' or 'quadratic'."
    )
