"""Batches in an order that a seed determines: of train data, else test data, else the example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import torch

from ...errors import DataError
from ..inputs import Inputs
from ..seeding import preserve_rng
from ..workload import Workload
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

MOST_BYTES = 512 << 20  # of a loader's batches, cached for the next method


class SampledBatches(ABC):
    """Batches by their index in the order; each is read, and moved to the device, at its use."""

    what: str  # "train data" …
    count: int  # of the batches that were requested, or of all

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def __getitem__(self, index: int) -> Batch: ...

    @property
    def available(self) -> int:
        """The number of batches to draw from: for a list also those that were not requested."""
        return self.count


def sampled_batches(
    work: Workload, requested: int | Sequence[Any] | None, seed: int
) -> SampledBatches:
    """The requested number of batches, or the given batches, or all."""
    if requested is not None and not isinstance(requested, int):
        return _sampled(work, requested, "batches given", None, seed)
    if requested is not None and requested < 1:
        raise DataError(
            f"{requested} batches are nothing to judge on; ask for 1 or more, or leave batches out "
            "for all."
        )
    data = data_for_evaluation(work)
    return example_inputs(work) if data is None else _sampled(work, *data, requested, seed)


def example_inputs(work: Workload) -> SampledBatches:
    """The example inputs as the only batch."""
    return _ListBatches(work, [(work.inputs, None)], "example inputs", None, 0)


def _sampled(
    work: Workload, source: Iterable[Any], what: str, requested: int | None, seed: int
) -> SampledBatches:
    check_source(source, f"{what} of {work.name}")
    kind = _ListBatches if is_list(source) else _LoaderBatches
    return kind(work, source, what, requested, seed)


class _ListBatches(SampledBatches):
    """Batches of a list: any can be read by itself, so their order is random."""

    def __init__(
        self, work: Workload, source: Any, what: str, requested: int | None, seed: int
    ) -> None:
        self.work, self.source, self.what = work, source, what
        if not len(source):
            raise no_batch(f"{what} of {work.name}")
        generator = torch.Generator().manual_seed(seed)
        self.order: list[int] = torch.randperm(len(source), generator=generator).tolist()
        self.count = min(requested or len(self.order), len(self.order))

    @property
    def available(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Batch:
        number, what = self.order[index], f"{self.what} of {self.work.name}"
        with preserve_rng(self.work.device), naming_batch(what, number):
            batch = self.source[number]
        return Batch(*pair_of(batch, self.work.device, what, number), number)


class _LoaderBatches(SampledBatches):
    """Batches of a loader: its first ones, in the order in which it yields them for the seed.

    Batches that were read are cached up to MOST_BYTES; when one before the current position is
    needed and not cached, the loader is read again from the start.
    """

    def __init__(
        self, work: Workload, source: Any, what: str, requested: int | None, seed: int
    ) -> None:
        self.work, self.source, self.what, self.seed = work, source, what, seed
        self._kept: dict[int, tuple[Inputs, Any]] = {}
        self._bytes, self._next = 0, 0
        self._reading: Generator[tuple[Inputs, Any], None, None] | None = None
        self.count = self._counted(requested)
        if not self.count:
            raise no_batch(f"{what} of {work.name}")

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < self.count:
            raise IndexError(index)
        pair = self._pair(index)
        if pair is None:
            raise DataError(
                f"the {self.what} of {self.work.name} end before batch {index}, of "
                f"{self.count}; let the loader yield as many each time."
            )
        return Batch(*on_device(pair, self.work.device), index)

    def _counted(self, requested: int | None) -> int:
        """The number of batches, at most `requested`; a loader without a length is read so far."""
        try:
            available = len(self.source)
        except TypeError:
            available = 0
            while (requested is None or available < requested) and self._pair(
                available
            ) is not None:
                available += 1
        return available if requested is None else min(requested, available)

    def _pair(self, index: int) -> tuple[Inputs, Any] | None:
        """A batch on the CPU; None if the loader ends before it."""
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
        """Start reading from the first batch; the current reader is closed, which restores the
        loader's generators.
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
