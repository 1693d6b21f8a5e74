"""Examples of the train data as one batch: those that layers are refit to, and those that the
result is evaluated on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...records import counted
from ..workload import Inputs, Workload
from .source import first_batches

MOST_EXAMPLES = 320
MOST_NUMBERS = 2**24  # of the inputs together; a first batch that has more is taken alone
HELD_OUT = 4  # one example in so many


@dataclass(frozen=True)
class Samples:
    """A batch: in front the examples to learn from, behind them those to be judged by, where there
    are enough for both.
    """

    inputs: Inputs
    count: int
    source: str

    @property
    def learned(self) -> int:
        """How many are learned from."""
        return self.count - self.count // HELD_OUT

    @property
    def judges(self) -> str:
        """Who judges, for a sentence."""
        if self.learned < self.count:
            return (
                f"{counted(self.count - self.learned, 'example')} of the {self.source} that it did "
                "not learn from"
            )
        return f"the {self.source} that it learned from"

    def judged(self, answer: Tensor) -> Tensor:
        """The part of an answer that judges."""
        is_by_example = answer.ndim > 0 and answer.shape[0] == self.count
        return answer[self.learned :] if is_by_example and self.learned < self.count else answer

    def border(self, rows: int) -> int:
        """Of the rows of a layer, example after example: how many are learned from."""
        return (
            rows * self.learned // self.count
            if self.learned < self.count
            else rows - rows // HELD_OUT
        )


def samples_of(work: Workload, most: int = MOST_EXAMPLES) -> Samples:
    """The first batches of the train data that fit together, or else the example inputs; none is
    read that would be one too many.
    """
    batches = _batches(work)
    first = next(batches, None)
    if first is None:
        return Samples(work.inputs, _examples(work.inputs) or 1, "example inputs")
    taken, count, numbers = [first], _examples(first) or 1, _numbers(first)
    size = _examples(first) or 1
    while count + size <= most and numbers + _numbers(first) <= MOST_NUMBERS:
        batch = next(batches, None)
        if batch is None:
            break
        count, numbers = count + (_examples(batch) or 1), numbers + _numbers(batch)
        if count > most or numbers > MOST_NUMBERS or not _is_alike(first, batch):
            break
        taken.append(batch)
    joined = _joined(taken)
    return Samples(joined, _examples(joined) or 1, "train data")


def _batches(work: Workload) -> Iterator[Inputs]:
    if work.train is not None:
        yield from (inputs for inputs, _ in first_batches(work.train, work.device, "train data"))


def _examples(inputs: Inputs) -> int | None:
    """How many examples a batch holds; None where its tensors do not agree on that."""
    sizes = {tensor.shape[0] if tensor.ndim else None for tensor in inputs.tensors}
    return sizes.pop() if len(sizes) == 1 else None


def _numbers(inputs: Inputs) -> int:
    return sum(tensor.numel() for tensor in inputs.tensors)


def _is_alike(one: Inputs, other: Inputs) -> bool:
    """Whether two batches are one batch when put one behind the other."""
    left, spec = pytree.tree_flatten((one.args, one.kwargs))
    right, other_spec = pytree.tree_flatten((other.args, other.kwargs))
    has_count = _examples(one) is not None and _examples(other) is not None
    return has_count and spec == other_spec and all(map(_fits, left, right))


def _fits(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape[1:] == other.shape[1:] and one.dtype == other.dtype
    return type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other)


def _joined(batches: list[Inputs]) -> Inputs:
    leaves = [pytree.tree_leaves((batch.args, batch.kwargs)) for batch in batches]
    _, spec = pytree.tree_flatten((batches[0].args, batches[0].kwargs))
    rows = [
        torch.cat(column) if isinstance(column[0], Tensor) else column[0]
        for column in zip(*leaves, strict=True)
    ]
    args, kwargs = pytree.tree_unflatten(rows, spec)
    return Inputs(args, kwargs)
