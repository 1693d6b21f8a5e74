"""Epochs of training, in an order that seed and epoch determine: a list is shuffled anew each
epoch, a loader shuffles itself. An epoch reads every batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any

import torch

from ...errors import DataError
from ..seeding import preserve_rng, seed_all, seed_of, seeded_generators
from .source import (
    END,
    Batch,
    check_source,
    first_batches,
    fresh_workers,
    is_list,
    naming_batch,
    no_batch,
    pair_of,
)

Change = Callable[[Batch], Batch]
WHAT = "train data"


class Batches:
    """Pairs of inputs and target; each is fetched, and moved to the device, at its use."""

    def __init__(self, source: Iterable[Any] | None, device: torch.device) -> None:
        self.source: Iterable[Any] = () if source is None else source
        self.device = device
        self.change: Change | None = None
        check_source(self.source, WHAT)
        self._items: Any = self.source if is_list(self.source) else None
        self.count = self._counted()
        if not self.count:
            raise no_batch(WHAT)

    @classmethod
    def of(cls, source: Iterable[Any] | Batches, device: torch.device) -> Batches:
        """The batches themselves, or Batches of a list or a loader."""
        return source if isinstance(source, Batches) else cls(source, device)

    def mapped(self, change: Change) -> Batches:
        """The same batches, each changed after it is fetched."""
        own = copy.copy(self)  # a new one would count a loader without a length again
        own.change = change
        return own

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from a step on. Each batch seeds the random state: wrap the loop
        in `preserve_rng`.
        """
        fetched = self._iterated if self._items is None else self._picked
        is_empty = not start
        with closing(fetched(seed, epoch, start)) as batches:
            for batch in batches:
                is_empty = False
                yield batch if self.change is None else self.change(batch)
        if is_empty:
            raise DataError(
                f"the {WHAT} give nothing in epoch {epoch + 1}; can they be gone through only once?"
            )

    def first(self) -> Batch:
        """One batch, as it was read, unchanged."""
        with preserve_rng(self.device):
            return next(self.mapped(lambda batch: batch).epoch(0, 0))

    def _picked(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """The batches of a list, shuffled here."""
        order = torch.randperm(
            self.count, generator=torch.Generator().manual_seed(seed_of(seed, epoch))
        ).tolist()
        has_fixed_items = type(self.source) in (
            list,
            tuple,
        )  # others may create items at each access
        for step in range(start, self.count):
            seed_all(self.device, seed, epoch, step)
            with naming_batch(WHAT, order[step]):
                batch = self._batch(
                    self._items[order[step]], order[step], order[step] if has_fixed_items else None
                )
            yield batch

    def _iterated(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """The batches of a loader, in its own order; those before the start are fetched and
        dropped.
        """
        with seeded_generators(self.source, seed_of(seed, epoch)), fresh_workers(self.source):
            seed_all(self.device, seed, epoch)
            with naming_batch(WHAT, 0):
                iterator = iter(self.source)
            step = 0
            while True:
                seed_all(self.device, seed, epoch, step)
                with naming_batch(WHAT, step):
                    item = next(iterator, END)
                    if item is END:
                        return
                    batch = self._batch(item, step, None)
                if step >= start:
                    yield batch
                step += 1

    def _batch(self, item: Any, index: int, number: int | None) -> Batch:
        return Batch(*pair_of(item, self.device, WHAT, index), number)

    def _counted(self) -> int:
        """The number of batches of an epoch; a loader without a length is read once to count."""
        try:
            return len(self.source)  # type: ignore[arg-type]
        except TypeError:
            return sum(1 for _ in first_batches(self.source, self.device, WHAT))
