"""How many cores a model may use, and how many are worth comparing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import torch

from ..arguments import MOST_THREADS
from ..errors import MeasureError
from .host import usable_cores


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside the block, and as many as before after it."""
    if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= MOST_THREADS:
        raise MeasureError(
            f"torch cannot work with {count} threads; use 1 to {usable_cores()[1]} on this machine."
        )
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_choices() -> tuple[int, ...]:
    """The thread counts worth comparing here: one, and all physical cores."""
    return tuple(sorted({1, usable_cores()[0]}))
