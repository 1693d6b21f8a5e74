"""Batches in an order that a seed decides: train data where there are some, else test data, else
the example inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import torch

from ...errors import DataError
from ..seeding import preserve_rng
from ..workload import Inputs, Workload
from .source import (
    Batch,
    check_source,
    data_for_evaluation,
    first_batches,
    is_list,
    naming_batch,
    no_batch,
    on_device,
    pair_of,
)

MOST_BYTES = 512 << 20  # of a loader's batches, kept for the next method that asks for them


class SampledBatches(ABC):
    """Batches by their place in the order; each is read, and moved to the device, when it is asked
    for.
    """

    what: str  # "train data" …

    @abstractmethod
    def __len__(self) -> int:
        """How many were asked for, or all."""

    @abstractmethod
    def __getitem__(self, index: int) -> Batch: ...

    @property
    @abstractmethod
    def available(self) -> int:
        """How many there are to take ranges from: of a list also those that were not asked for."""


def sampled_batches(work: Workload, asked: int | Sequence[Any] | None, seed: int) -> SampledBatches:
    """As many batches as asked, or those given, or all."""
    if asked is not None and not isinstance(asked, int):
        return _sampled(work, asked, "batches given", None, seed)
    if asked is not None and asked < 1:
        raise DataError(
            f"{asked} batches are nothing to judge on; ask for 1 or more, or leave batches out for "
            "all."
        )
    data = data_for_evaluation(work)
    return example_inputs(work) if data is None else _sampled(work, *data, asked, seed)


def example_inputs(work: Workload) -> SampledBatches:
    """The example inputs as the only batch."""
    return _ListBatches(work, [(work.inputs, None)], "example inputs", None, 0)


def _sampled(
    work: Workload, source: Iterable[Any], what: str, asked: int | None, seed: int
) -> SampledBatches:
    check_source(source, f"{what} of {work.name}")
    kind = _ListBatches if is_list(source) else _LoaderBatches
    return kind(work, source, what, asked, seed)


class _ListBatches(SampledBatches):
    """Of a list: any batch can be read by itself, so that they come in a drawn order."""

    def __init__(
        self, work: Workload, source: Any, what: str, asked: int | None, seed: int
    ) -> None:
        self.work, self.source, self.what = work, source, what
        if not len(source):
            raise no_batch(f"{what} of {work.name}")
        generator = torch.Generator().manual_seed(seed)
        self.order: list[int] = torch.randperm(len(source), generator=generator).tolist()
        self.count = min(asked or len(self.order), len(self.order))

    def __len__(self) -> int:
        return self.count

    @property
    def available(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Batch:
        number, what = self.order[index], f"{self.what} of {self.work.name}"
        with preserve_rng(self.work.device), naming_batch(what, number):
            batch = self.source[number]
        return Batch(*pair_of(batch, self.work.device, what, number), number)


class _LoaderBatches(SampledBatches):
    """Of a loader: its first batches, in the order in which it gives them for the seed.

    What was read is kept as long as it is small; further batches are read again from the start
    when an earlier one is asked for.
    """

    def __init__(
        self, work: Workload, source: Any, what: str, asked: int | None, seed: int
    ) -> None:
        self.work, self.source, self.what, self.seed = work, source, what, seed
        self._kept: dict[int, tuple[Inputs, Any]] = {}
        self._bytes, self._next = 0, 0
        self._reading: Generator[tuple[Inputs, Any], None, None] | None = None
        self.count = self._counted(asked)
        if not self.count:
            raise no_batch(f"{what} of {work.name}")

    def __len__(self) -> int:
        return self.count

    @property
    def available(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < self.count:
            raise IndexError(index)
        pair = self._pair(index)
        if pair is None:
            raise DataError(
                f"the {self.what} of {self.work.name} end before batch {index}, of "
                f"{self.count}; let the loader give as many each time."
            )
        return Batch(*on_device(pair, self.work.device), index)

    def _counted(self, asked: int | None) -> int:
        """How many there are, up to those asked for; a loader without a length is read so far."""
        try:
            available = len(self.source)
        except TypeError:
            available = 0
            while (asked is None or available < asked) and self._pair(available) is not None:
                available += 1
        return available if asked is None else min(asked, available)

    def _pair(self, index: int) -> tuple[Inputs, Any] | None:
        """A batch on the CPU; None where the loader has ended before it."""
        if index in self._kept:
            return self._kept[index]
        if self._reading is None or index < self._next:
            self._start()
        assert self._reading is not None
        for pair in self._reading:
            self._keep(self._next, pair)
            self._next += 1
            if self._next > index:
                return pair
        return None

    def _start(self) -> None:
        """Begin to read from the first batch; what was being read is closed, which puts the
        loader's generators back.
        """
        if self._reading is not None:
            self._reading.close()
        what = f"{self.what} of {self.work.name}"
        self._reading = first_batches(self.source, torch.device("cpu"), what, seed=self.seed)
        self._next = 0

    def _keep(self, index: int, pair: tuple[Inputs, Any]) -> None:
        size = sum(tensor.nbytes for tensor in pair[0].tensors)
        if index not in self._kept and self._bytes + size <= MOST_BYTES:
            self._kept[index] = pair
            self._bytes += size
