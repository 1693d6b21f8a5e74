"""How far a student's answer is from its teacher's: classes by their probabilities at a
temperature, values by their squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from ...errors import StepError

Answers = Literal["auto", "classes", "values"]
Kinds = dict[
    str, int | None
]  # for each tensor of an answer that is compared: the dimension of its classes, None for values
SMALLEST = 1e-12


def tensors_of(answer: Any) -> dict[str, Tensor]:
    """The floating-point tensors of an answer, by where they are in it."""
    return {path: leaf for path, leaf in _leaves(answer, "") if leaf.is_floating_point()}


def kinds_of(answer: Any, target: Any, asked: Answers) -> Kinds:
    """Which tensors are compared, and how.

    Asked to find out, it takes for classes what is called `logits`, or what labels fit that leave
    one dimension out; where there is any such, the rest is not compared.
    """
    found = tensors_of(answer)
    if not found:
        raise StepError(
            "its answer holds no tensor of floating-point numbers, so there is nothing to learn "
            "from the original."
        )
    if asked == "values":
        return dict.fromkeys(found)
    labels = [
        leaf
        for leaf in pytree.tree_leaves(target)
        if isinstance(leaf, Tensor) and not leaf.is_floating_point()
    ]
    classes = {
        path: _class_dimension(path, leaf, labels, is_sure=asked == "classes")
        for path, leaf in found.items()
    }
    known = {path: dimension for path, dimension in classes.items() if dimension is not None}
    if asked == "classes" and not known:
        raise StepError(
            "no tensor of its answer has a dimension of two classes or more; say answers: values."
        )
    return dict(known) or dict.fromkeys(found)


def distance(answer: Any, taught: Mapping[str, Tensor], kinds: Kinds, temperature: float) -> Tensor:
    """The mean distance over the tensors that are compared, in full precision."""
    own = tensors_of(answer)
    parts = [
        _apart(path, own.get(path), taught[path], dimension, temperature)
        for path, dimension in kinds.items()
    ]
    return torch.stack(parts).mean()


def divergence(own: Tensor, taught: Tensor, dimension: int, temperature: float) -> Tensor:
    """How surprised the student's probabilities are by the teacher's, both softened; as steep at
    every temperature.
    """
    mine, theirs = (
        F.log_softmax(scores.float() / temperature, dimension) for scores in (own, taught)
    )
    return (
        F.kl_div(mine, theirs, reduction="none", log_target=True).sum(dimension).mean()
        * temperature**2
    )


def squares(own: Tensor, taught: Tensor) -> Tensor:
    """The mean square of the difference, as a share of the teacher's own."""
    return (
        own.float() - taught.float()
    ).square().mean() / taught.float().square().mean().clamp_min(SMALLEST)


def _apart(
    path: str, own: Tensor | None, taught: Tensor, dimension: int | None, temperature: float
) -> Tensor:
    if own is None or own.shape != taught.shape:
        shape = "none" if own is None else tuple(own.shape)
        raise StepError(
            f"its answer{path} has shape {shape} where the original's has {tuple(taught.shape)}; "
            "it cannot be compared."
        )
    return (
        squares(own, taught)
        if dimension is None
        else divergence(own, taught, dimension, temperature)
    )


def _class_dimension(path: str, leaf: Tensor, labels: list[Tensor], *, is_sure: bool) -> int | None:
    for dimension in (1, leaf.ndim - 1):
        if 1 <= dimension < leaf.ndim and leaf.shape[dimension] > 1:
            rest = leaf.shape[:dimension] + leaf.shape[dimension + 1 :]
            if any(label.shape == rest for label in labels):
                return dimension
    usual = leaf.ndim - 1 if leaf.ndim == 3 else 1
    is_named = path.rpartition(".")[2] == "logits"
    return usual if (is_sure or is_named) and leaf.ndim > 1 and leaf.shape[usual] > 1 else None


def _leaves(answer: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(answer, Tensor):
        yield path, answer
    elif isinstance(answer, Mapping):
        for key, value in answer.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(answer, tuple | list):
        for index, value in enumerate(answer):
            yield from _leaves(value, f"{path}.{index}")
    elif answer is not None:  # a class of its own that torch knows how to take apart
        yield from (
            (f"{path}.{index}", leaf)
            for index, leaf in enumerate(pytree.tree_leaves(answer))
            if isinstance(leaf, Tensor)
        )
