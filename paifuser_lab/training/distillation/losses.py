"""The distance of a student's output from its teacher's: classes by their probabilities at a
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
# for each compared tensor of an output: the dimension of its classes, None for values
Kinds = dict[str, int | None]
SMALLEST = 1e-12


def tensors_of(output: Any) -> dict[str, Tensor]:
    """The floating-point tensors of an output, by their path in it."""
    return {path: leaf for path, leaf in _leaves(output, "") if leaf.is_floating_point()}


def kinds_of(output: Any, target: Any, kind: Answers) -> Kinds:
    """Which tensors are compared, and how.

    With "auto", a tensor holds classes if it is named `logits`, or if labels have its shape without
    one dimension; if there is any such tensor, the others are not compared.
    """
    tensors = tensors_of(output)
    if not tensors:
        raise StepError(
            "its output has no tensor of floating-point numbers, so there is nothing to learn "
            "from the original."
        )
    if kind == "values":
        return dict.fromkeys(tensors)
    labels = [
        leaf
        for leaf in pytree.tree_leaves(target)
        if isinstance(leaf, Tensor) and not leaf.is_floating_point()
    ]
    classes = {
        path: _class_dimension(path, leaf, labels, is_sure=kind == "classes")
        for path, leaf in tensors.items()
    }
    known = {path: dimension for path, dimension in classes.items() if dimension is not None}
    if kind == "classes" and not known:
        raise StepError(
            "no tensor of its output has a dimension of two classes or more; say answers: values."
        )
    return dict(known) or dict.fromkeys(tensors)


def distance(output: Any, taught: Mapping[str, Tensor], kinds: Kinds, temperature: float) -> Tensor:
    """The mean distance over the compared tensors, in fp32."""
    own = tensors_of(output)
    parts = [
        _apart(path, own.get(path), taught[path], dimension, temperature)
        for path, dimension in kinds.items()
    ]
    return torch.stack(parts).mean()


def divergence(own: Tensor, taught: Tensor, dimension: int, temperature: float) -> Tensor:
    """The Kullback-Leibler divergence of the student's softened probabilities from the teacher's,
    scaled so that its gradient does not depend on the temperature.
    """
    mine, theirs = (
        F.log_softmax(scores.float() / temperature, dimension) for scores in (own, taught)
    )
    return (
        F.kl_div(mine, theirs, reduction="none", log_target=True).sum(dimension).mean()
        * temperature**2
    )


def squares(own: Tensor, taught: Tensor) -> Tensor:
    """The mean square of the difference, divided by the teacher's mean square."""
    return (
        own.float() - taught.float()
    ).square().mean() / taught.float().square().mean().clamp_min(SMALLEST)


def _apart(
    path: str, own: Tensor | None, taught: Tensor, dimension: int | None, temperature: float
) -> Tensor:
    if own is None or own.shape != taught.shape:
        shape = "none" if own is None else tuple(own.shape)
        raise StepError(
            f"its output{path} has shape {shape} where the original's has {tuple(taught.shape)}; "
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


def _leaves(output: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(output, Tensor):
        yield path, output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(output, tuple | list):
        for index, value in enumerate(output):
            yield from _leaves(value, f"{path}.{index}")
    elif output is not None:  # a class that is registered with pytree
        yield from (
            (f"{path}.{index}", leaf)
            for index, leaf in enumerate(pytree.tree_leaves(output))
            if isinstance(leaf, Tensor)
        )
