"""Somebody is told of each second that something takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(tell: Callable[[int], object]) -> Iterator[None]:
    """`tell(1)` after one second, `tell(2)` after two, from a thread of its own, until the block is
    left.
    """
    is_over = threading.Event()

    def count() -> None:
        seconds = 0
        while not is_over.wait(1.0):
            seconds += 1
            tell(seconds)

    counting = threading.Thread(target=count, name="ticking", daemon=True)
    counting.start()
    try:
        yield
    finally:
        is_over.set()
        counting.join()
