"""Epochs of training, in an order that seed and epoch decide: a list is shuffled anew each epoch, a
loader shuffles for itself. An epoch reads every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any

import torch

from ..seeding import preserve_rng, seed_all, seed_of, seeded_generators
from .source import (
    END,
    Batch,
    check_source,
    first_batches,
    is_list,
    naming_batch,
    no_batch,
    pair_of,
)

Change = Callable[[Batch], Batch]


class Batches:
    """Pairs of inputs and target; each is fetched, and moved to the device, when it is its turn."""

    def __init__(
        self,
        source: Iterable[Any],
        device: torch.device,
        *,
        what: str = "train data",
        change: Change | None = None,
    ) -> None:
        self.source, self.device, self.what, self.change = source, device, what, change
        check_source(source, what)
        self._items: Any = source if is_list(source) else None
        self.count = self._counted()
        if not self.count:
            raise no_batch(what)

    @classmethod
    def of(cls, source: Iterable[Any] | Batches, device: torch.device) -> Batches:
        """Batches as they are, or made of a list or a loader."""
        return source if isinstance(source, Batches) else cls(source, device)

    def mapped(self, change: Change) -> Batches:
        """The same batches, each changed once it is fetched."""
        return Batches(self.source, self.device, what=self.what, change=change)

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from a step on. The random state is seeded anew for each: hold
        `preserve_rng` around whatever asks for one.
        """
        fetched = self._iterated if self._items is None else self._picked
        with closing(fetched(seed, epoch, start)) as found:
            for batch in found:
                yield batch if self.change is None else self.change(batch)

    def first(self) -> Batch:
        """One batch, as it was read."""
        with preserve_rng(self.device):
            return next(self.mapped(lambda batch: batch).epoch(0, 0))

    def _picked(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """From a list: in an order of our own."""
        order = torch.randperm(
            self.count, generator=torch.Generator().manual_seed(seed_of(seed, epoch))
        ).tolist()
        is_still = type(self.source) in (list, tuple)  # others may make their items anew
        for step in range(start, self.count):
            seed_all(self.device, seed, epoch, step)
            with naming_batch(self.what, order[step]):
                batch = self._batch(
                    self._items[order[step]], order[step], order[step] if is_still else None
                )
            yield batch

    def _iterated(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """From a loader: in the order in which it comes; what comes before the start is fetched and
        left.
        """
        with seeded_generators(self.source, seed_of(seed, epoch)):
            seed_all(self.device, seed, epoch)
            with naming_batch(self.what, 0):
                left = iter(self.source)
            step = 0
            while True:
                seed_all(self.device, seed, epoch, step)
                with naming_batch(self.what, step):
                    found = next(left, END)
                    if found is END:
                        return
                    batch = self._batch(found, step, None)
                if step >= start:
                    yield batch
                step += 1

    def _batch(self, found: Any, place: int, number: int | None) -> Batch:
        return Batch(*pair_of(found, self.device, self.what, place), number)

    def _counted(self) -> int:
        """How many batches an epoch has; a loader without a length is read once to count them."""
        try:
            return len(self.source)  # type: ignore[arg-type]
        except TypeError:
            return sum(1 for _ in first_batches(self.source, self.device, self.what))
