"""What a workload's data give: pairs of inputs and target, from a list or a loader, and a clear
word where they give something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import PaifuserError, StepError, first_line
from .seeding import own_chance, seeded_generators, throw
from .workload import Inputs

END = object()
SEED = 0


def first_batches(
    source: Iterable[Any], device: torch.device, what: str
) -> Iterator[tuple[Inputs, Any]]:
    """The batches in the order of a list, or as a loader gives them for one seed: always the same,
    and chance is left as it was.
    """
    check_source(source, what)
    with seeded_generators(source, SEED):
        with own_chance(device), telling(what, 0):
            throw(device, SEED)
            left = _in_order(source) if is_list(source) else iter(source)
        for place in count():
            with own_chance(device), telling(what, place):
                throw(device, SEED, place)
                found = next(left, END)
            if found is END:
                return
            yield pair_of(found, device, what, place)


def pair_of(found: Any, device: torch.device, what: str, place: int) -> tuple[Inputs, Any]:
    """A batch as inputs and target, on the device."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise StepError(
            f"batch {place} of the {what} is a {_kind(found)}; let it be (inputs, target)."
        )
    return on_device(found, device)


def on_device(pair: Sequence[Any], device: torch.device) -> tuple[Inputs, Any]:
    """Inputs and target on the device, as tensors that gradients can be found with, wherever they
    were made.
    """

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device).clone() if tensor.is_inference() else tensor.to(device)

    return Inputs.of(pair[0]).map(moved), pytree.tree_map_only(Tensor, moved, pair[1])


def is_list(source: Any) -> bool:
    """Whether its batches have places, so that any of them can be fetched."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def check_source(source: Any, what: str) -> None:
    """Say so where batches cannot be had again and again."""
    if not is_list(source) and not hasattr(source, "__iter__"):
        raise StepError(
            f"the {what} are a {type(source).__name__}; give a list of (inputs, target), or a "
            "DataLoader."
        )
    if hasattr(source, "__next__"):
        raise StepError(
            f"the {what} can be gone through only once; give a list of (inputs, target), or a "
            "DataLoader."
        )


@contextmanager
def telling(what: str, place: int) -> Iterator[None]:
    """Whatever the data raise is told with the batch that it was raised at."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        raise StepError(
            f"the {what} fail at batch {place} ({type(error).__name__}: "
            f"{first_line(error).rstrip('.')}); mend them and apply it again."
        ) from error


def _in_order(source: Any) -> Iterator[Any]:
    return (source[place] for place in range(len(source)))


def _kind(found: Any) -> str:
    return (
        f"{type(found).__name__} of {len(found)}"
        if isinstance(found, tuple | list)
        else type(found).__name__
    )
