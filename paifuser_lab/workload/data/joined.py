"""Examples of the train data as one batch: those to refit to, and those to evaluate on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...records import counted
from ..inputs import Inputs
from ..workload import Workload
from .source import first_batches

MOST_EXAMPLES = 320
MOST_NUMBERS = 2**24  # of all inputs together; a first batch with more is used alone
EXAMPLE_INPUTS = "example inputs"  # the source where there are no train data
HELD_OUT = 4  # one example in so many is held out


@dataclass(frozen=True)
class Samples:
    """A batch: first the examples to fit to, then those held out for evaluation, if there are
    enough for both.
    """

    inputs: Inputs
    count: int
    source: str

    @property
    def learned(self) -> int:
        """The number of examples to fit to."""
        return self.count - self.count // HELD_OUT

    def first(self, count: int) -> Inputs:
        """The first examples; of example inputs, whose batch may be fixed, all."""
        if self.source == EXAMPLE_INPUTS:
            return self.inputs
        return self.inputs.map(
            lambda value: value[:count] if value.ndim and value.shape[0] == self.count else value
        )

    @property
    def judges(self) -> str:
        """The examples that are evaluated on, as words in a sentence."""
        if self.learned < self.count:
            return (
                f"{counted(self.count - self.learned, 'example')} of the {self.source} that it did "
                "not learn from"
            )
        return f"the {self.source} that it learned from"

    def judged(self, output: Tensor) -> Tensor:
        """The part of an output that is evaluated."""
        is_by_example = output.ndim > 0 and output.shape[0] == self.count
        return output[self.learned :] if is_by_example and self.learned < self.count else output

    def border(self, rows: int) -> int:
        """The number of rows to fit to, of a layer's rows, which are in order of the examples."""
        return (
            rows * self.learned // self.count
            if self.learned < self.count
            else rows - rows // HELD_OUT
        )


def samples_of(work: Workload, most: int = MOST_EXAMPLES) -> Samples:
    """The first batches of the train data that can be joined, or else the example inputs; no more
    than needed are read.
    """
    batches = _batches(work)
    first = next(batches, None)
    if first is None:
        return Samples(work.inputs, _examples(work.inputs) or 1, EXAMPLE_INPUTS)
    taken, count, numbers = [first], _examples(first) or 1, _numbers(first)
    size = _examples(first) or 1
    while count + size <= most and numbers + _numbers(first) <= MOST_NUMBERS:
        batch = next(batches, None)
        if batch is None:
            break
        count, numbers = count + (_examples(batch) or 1), numbers + _numbers(batch)
        if count > most or numbers > MOST_NUMBERS or not _can_join(first, batch):
            break
        taken.append(batch)
    joined = _joined(taken)
    return Samples(joined, _examples(joined) or 1, "train data")


def _batches(work: Workload) -> Iterator[Inputs]:
    if work.train is not None:
        yield from (inputs for inputs, _ in first_batches(work.train, work.device, "train data"))


def _examples(inputs: Inputs) -> int | None:
    """The number of examples in a batch; None if its tensors differ in that."""
    sizes = {tensor.shape[0] if tensor.ndim else None for tensor in inputs.tensors}
    return sizes.pop() if len(sizes) == 1 else None


def _numbers(inputs: Inputs) -> int:
    return sum(tensor.numel() for tensor in inputs.tensors)


def _can_join(first: Inputs, second: Inputs) -> bool:
    """Whether two batches can be concatenated to one."""
    left, spec = pytree.tree_flatten((first.args, first.kwargs))
    right, other_spec = pytree.tree_flatten((second.args, second.kwargs))
    has_count = _examples(first) is not None and _examples(second) is not None
    return has_count and spec == other_spec and all(map(_leaves_match, left, right))


def _leaves_match(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape[1:] == second.shape[1:] and first.dtype == second.dtype
    return type(first) is type(second) and not isinstance(first, Tensor) and bool(first == second)


def _joined(batches: list[Inputs]) -> Inputs:
    leaves = [pytree.tree_leaves((batch.args, batch.kwargs)) for batch in batches]
    _, spec = pytree.tree_flatten((batches[0].args, batches[0].kwargs))
    rows = [
        torch.cat(column) if isinstance(column[0], Tensor) else column[0]
        for column in zip(*leaves, strict=True)
    ]
    args, kwargs = pytree.tree_unflatten(rows, spec)
    return Inputs(args, kwargs)
