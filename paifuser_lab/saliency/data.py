"""The batches that layers are judged on: train data where there is some, else test data, else the
example inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import MeasureError
from ..workload import Workload
from ..workload.data import first_batches, on_device
from .subject import Batch


@dataclass(frozen=True)
class Batches:
    """Batches in an order that the seed decides; each is fetched, and moved to the model, when it
    is asked for.

    Only the first `count` are judged on; what the values of a layer lie between is taken from more,
    whatever was asked for.
    """

    work: Workload
    source: Sequence[Any]
    order: tuple[int, ...]
    what: str  # "train data" …
    count: int

    def __len__(self) -> int:
        return self.count

    @property
    def available(self) -> int:
        """How many there are, also of those that were not asked for."""
        return len(self.order)

    def __getitem__(self, index: int) -> Batch:
        number = self.order[index]
        found = self.source[number]
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise MeasureError(
                f"batch {number} of the {self.what} of {self.work.name} is a "
                f"{type(found).__name__}; let it be (inputs, target)."
            )
        return Batch(number, *on_device(found, self.work.device))


def with_gradients(work: Workload) -> Workload:
    """The workload, or one with a copy of the model where its weights were made under
    torch.inference_mode(): they have no gradients.
    """
    return (
        work.copied() if any(weight.is_inference() for weight in work.model.parameters()) else work
    )


def batches_of(work: Workload, asked: int | Sequence[Any] | None, seed: int) -> Batches:
    """As many batches as asked, or those given, or all."""
    if asked is not None and not isinstance(asked, int):
        return _ordered(work, asked, "batches given", None, seed)
    if asked is not None and asked < 1:
        raise MeasureError(
            f"{asked} batches are nothing to judge on; ask for 1 or more, or leave batches out for "
            "all."
        )
    for source, what in ((work.train, "train data"), (work.test, "test data")):
        if source is not None:
            return _ordered(work, source, what, asked, seed)
    return Batches(work, [(work.inputs, None)], (0,), "example inputs", 1)


def _ordered(
    work: Workload, source: Sequence[Any], what: str, asked: int | None, seed: int
) -> Batches:
    listed = (
        source
        if hasattr(source, "__getitem__")
        else list(first_batches(source, torch.device("cpu"), what))
    )
    if not len(listed):
        raise MeasureError(
            f"the {what} of {work.name} hold no batch; give at least one pair of inputs and target."
        )
    order = torch.randperm(len(listed), generator=torch.Generator().manual_seed(seed)).tolist()
    return Batches(work, listed, tuple(order), what, min(asked or len(order), len(order)))
