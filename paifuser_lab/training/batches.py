"""Batches to learn from, in an order that seed and epoch decide: a list is shuffled anew each epoch, a loader shuffles for itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import PaifuserError, StepError, first_line
from ..workload import Inputs
from .chance import own_chance, seed_of, seeded_generators, throw

END = object()


@dataclass(frozen=True)
class Batch:
    """Inputs, and what is to be learned of them."""

    inputs: Inputs
    target: Any
    number: int | None = None  # its place in a list; None where the same place may hold something else the next time


Change = Callable[[Batch], Batch]


class Batches:
    """Pairs of inputs and target; each is fetched, and moved to the device, when it is its turn."""

    def __init__(
        self, source: Iterable[Any], device: torch.device, *, what: str = "train data", change: Change | None = None
    ) -> None:
        self.source, self.device, self.what, self.change = source, device, what, change
        self._items: Any = source if hasattr(source, "__getitem__") and hasattr(source, "__len__") else None
        self._check()
        self.count = self._counted()
        if not self.count:
            raise StepError(f"the {what} hold no batch; give at least one pair of inputs and target.")

    @classmethod
    def of(cls, source: Iterable[Any] | Batches, device: torch.device) -> Batches:
        """Batches as they are, or made of a list or a loader."""
        return source if isinstance(source, Batches) else cls(source, device)

    def mapped(self, change: Change) -> Batches:
        """The same batches, each changed once it is fetched."""
        return Batches(self.source, self.device, what=self.what, change=change)

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from a step on. It seeds chance anew for each: hold `own_chance` around whatever asks for one."""
        fetched = self._iterated if self._items is None else self._picked
        with closing(fetched(seed, epoch, start)) as found:
            for batch in found:
                yield batch if self.change is None else self.change(batch)

    def first(self) -> Batch:
        """A batch to look at, as it was fetched."""
        with own_chance(self.device):
            return next(self.mapped(lambda batch: batch).epoch(0, 0))

    def _picked(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """From a list: in an order of our own."""
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(seed_of(seed, epoch))).tolist()
        is_still = type(self.source) in (list, tuple)  # others may make their items anew
        for step in range(start, self.count):
            throw(self.device, seed, epoch, step)
            with self._told(order[step]):
                batch = self._batch(self._items[order[step]], order[step], order[step] if is_still else None)
            yield batch

    def _iterated(self, seed: int, epoch: int, start: int) -> Generator[Batch, None, None]:
        """From a loader: in the order in which it comes; what comes before the start is fetched and left."""
        with seeded_generators(self.source, seed_of(seed, epoch)):
            throw(self.device, seed, epoch)
            with self._told(0):
                left = iter(self.source)
            step = 0
            while True:
                throw(self.device, seed, epoch, step)
                with self._told(step):
                    found = next(left, END)
                    if found is END:
                        return
                    batch = self._batch(found, step, None)
                if step >= start:
                    yield batch
                step += 1

    def _batch(self, found: Any, place: int, number: int | None) -> Batch:
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise StepError(f"batch {place} of the {self.what} is a {type(found).__name__}; let it be (inputs, target).")
        target = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(self.device), found[1])
        return Batch(Inputs.of(found[0]).map(lambda tensor: tensor.to(self.device)), target, number)

    @contextmanager
    def _told(self, place: int) -> Iterator[None]:
        """Whatever the data raise is told with the batch that it was raised at."""
        try:
            yield
        except PaifuserError:
            raise
        except Exception as error:
            raise StepError(
                f"the {self.what} fail at batch {place} ({type(error).__name__}: {first_line(error).rstrip('.')}); mend them and apply it again."
            ) from error

    def _check(self) -> None:
        if self._items is None and not hasattr(self.source, "__iter__"):
            kind = type(self.source).__name__
            raise StepError(f"the {self.what} are a {kind}; give a list of (inputs, target), or a DataLoader.")
        if hasattr(self.source, "__next__"):
            raise StepError(f"the {self.what} can be gone through only once; give a list of (inputs, target), or a DataLoader.")

    def _counted(self) -> int:
        """How many batches an epoch has; where nobody says so they are gone through."""
        try:
            return len(self.source)  # type: ignore[arg-type]
        except TypeError:
            with own_chance(self.device), self._told(0):
                return sum(1 for _ in self.source)
