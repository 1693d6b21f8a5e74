"""Pairs of inputs and target from a list or a loader, on the device, in its own order."""

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

from ...errors import DataError, PaifuserError, first_line
from ..seeding import preserve_rng, seed_all, seeded_generators
from ..workload import Inputs, Workload

END = object()
SEED = 0


@dataclass(frozen=True)
class Batch:
    """Inputs, and the target where that is known."""

    inputs: Inputs
    target: Any = None
    number: int | None = (
        None  # its index in the data; None where the same index may hold another one the next time
    )

    @property
    def examples(self) -> int:
        """How many there are in it."""
        tensors = [tensor for tensor in self.inputs.tensors if tensor.ndim]
        return tensors[0].shape[0] if tensors else 1


def first_batches(
    source: Iterable[Any], device: torch.device, what: str, *, seed: int = SEED
) -> Generator[tuple[Inputs, Any], None, None]:
    """The batches in the order of a list, or as a loader gives them for one seed: always the same,
    and the random state is left as it was.

    Each is read when it is asked for: `islice` of four reads four.
    """
    check_source(source, what)
    with seeded_generators(source, seed):
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


def calibration_batches(work: Workload, count: int) -> list[Inputs]:
    """The inputs of the first batches of the train data, or else of the test data; none where there
    are no data.
    """
    data = data_for_evaluation(work)
    if data is None:
        return []
    source, what = data
    return [inputs for inputs, _ in islice(first_batches(source, work.device, what), count)]


def data_for_evaluation(work: Workload) -> tuple[Sequence[Any], str] | None:
    """The train data where there are some, else the test data, and what they are called."""
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
    """Inputs and target on the device, as tensors that gradients can be computed with, wherever
    they were made.
    """

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device).clone() if tensor.is_inference() else tensor.to(device)

    return Inputs.of(pair[0]).map(moved), pytree.tree_map_only(Tensor, moved, pair[1])


def is_list(source: Any) -> bool:
    """Whether its batches have an index, by which any of them can be read."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def check_source(source: Any, what: str) -> None:
    """Refuse data that cannot be read again and again."""
    if not is_list(source) and not hasattr(source, "__iter__"):
        raise DataError(
            f"the {what} are a {type(source).__name__}; give a list of (inputs, target), or a "
            "DataLoader."
        )
    if hasattr(source, "__next__"):
        raise DataError(
            f"the {what} can be gone through only once; give a list of (inputs, target), or a "
            "DataLoader."
        )


def no_batch(what: str) -> DataError:
    """The error for data that are there and empty."""
    return DataError(f"the {what} hold no batch; give at least one pair of inputs and target.")


@contextmanager
def naming_batch(what: str, index: int) -> Iterator[None]:
    """Whatever the data raise names the batch at which it was raised."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        raise DataError(
            f"the {what} fail at batch {index} ({type(error).__name__}: "
            f"{first_line(error).rstrip('.')}); mend them and apply it again."
        ) from error


def _in_order(source: Any) -> Iterator[Any]:
    return (source[index] for index in range(len(source)))


def _kind(batch: Any) -> str:
    return (
        f"{type(batch).__name__} of {len(batch)}"
        if isinstance(batch, tuple | list)
        else type(batch).__name__
    )
