"""Pairs of inputs and target from a list or a loader, on the device, in their own order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as count_up
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from ...errors import DataError, PaifuserError, first_line
from ..inputs import Inputs
from ..seeding import preserve_rng, seed_all, seeded_generators
from ..workload import Workload

END = object()
SEED = 0


@dataclass(frozen=True)
class Batch:
    """Inputs, and the target where known."""

    inputs: Inputs
    target: Any = None
    number: int | None = None  # its index in the data; None if another batch may have it next time

    @property
    def examples(self) -> int:
        """The number of examples."""
        tensors = [tensor for tensor in self.inputs.tensors if tensor.ndim]
        return tensors[0].shape[0] if tensors else 1


def first_batches(
    source: Iterable[Any], device: torch.device, what: str, *, seed: int = SEED
) -> Generator[tuple[Inputs, Any], None, None]:
    """The batches of a list in order, or of a loader in its order for one seed: always the same.
    The random state is preserved.

    Each is read at its use: `islice` of four reads four.
    """
    check_source(source, what)
    with seeded_generators(source, seed), fresh_workers(source):
        with preserve_rng(device), naming_batch(what, 0):
            seed_all(device, seed)
            batches = _in_order(source) if is_list(source) else iter(source)
        for index in count_up():
            with preserve_rng(device), naming_batch(what, index):
                seed_all(device, seed, index)
                batch = next(batches, END)
            if batch is END:
                return
            yield pair_of(batch, device, what, index)


class Same:
    """An object in a key: equal to itself alone, and alive as long as the key, so that no other one
    takes its place in memory.
    """

    def __init__(self, known: object) -> None:
        self.known = known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.known is other.known

    def __hash__(self) -> int:
        return id(self.known)


def calibration_batches(work: Workload, count: int) -> list[Inputs]:
    """The inputs of the first batches of the train data, or else of the test data; none without
    data.
    """
    data = data_for_evaluation(work)
    if data is None:
        return []
    source, what = data
    return [inputs for inputs, _ in islice(first_batches(source, work.device, what), count)]


def data_for_evaluation(work: Workload) -> tuple[Sequence[Any], str] | None:
    """The train data if there are any, else the test data, and their name."""
    if work.train is not None:
        return work.train, "train data"
    return None if work.test is None else (work.test, "test data")


def pair_of(batch: Any, device: torch.device, what: str, index: int) -> tuple[Inputs, Any]:
    """A batch as inputs and target, on the device."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise DataError(
            f"batch {index} of the {what} is a {_kind(batch)}; let it be (inputs, target)."
        )
    return on_device(batch, device)


def on_device(pair: Sequence[Any], device: torch.device) -> tuple[Inputs, Any]:
    """Inputs and target on the device, as tensors with which gradients can be computed, even if
    they were created in inference mode.
    """

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device).clone() if tensor.is_inference() else tensor.to(device)

    return Inputs.of(pair[0]).map(move), pytree.tree_map_only(Tensor, move, pair[1])


def is_list(source: Any) -> bool:
    """Whether the batches can be read by index."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def check_source(source: Any, what: str) -> None:
    """Refuse data that cannot be read repeatedly."""
    if not is_list(source) and not hasattr(source, "__iter__"):
        raise DataError(
            f"the {what} are a {type(source).__name__}; give a list of (inputs, target), or a "
            "DataLoader."
        )
    if hasattr(source, "__next__"):
        raise DataError(
            f"the {what} can be iterated only once; give a list of (inputs, target), or a "
            "DataLoader."
        )


def no_batch(what: str) -> DataError:
    """The error for data without a batch."""
    return DataError(f"the {what} hold no batch; give at least one pair of inputs and target.")


@contextmanager
def naming_batch(what: str, index: int) -> Iterator[None]:
    """Wrap an exception raised by the data into an error that names the batch."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        raise DataError(
            f"the {what} fail at batch {index} ({type(error).__name__}: "
            f"{first_line(error).rstrip('.')}); correct them and apply it again."
        ) from error


@contextmanager
def fresh_workers(source: Any) -> Iterator[None]:
    """Let a loader with persistent workers start new ones, since only these draw by the seed, and
    keep none: a loader that holds its workers cannot be sent to another process.
    """
    is_persistent = isinstance(source, DataLoader) and source.persistent_workers
    try:
        if is_persistent:
            source._iterator = None
        yield
    finally:
        if is_persistent:
            source._iterator = None


def _in_order(source: Any) -> Iterator[Any]:
    return (source[index] for index in range(len(source)))


def _kind(batch: Any) -> str:
    return (
        f"{type(batch).__name__} of {len(batch)}"
        if isinstance(batch, tuple | list)
        else type(batch).__name__
    )
