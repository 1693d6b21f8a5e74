"""What the pools of a CPU and of CUDA have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Self

from ...errors import PoolError
from ...records import MemoryPoolUse


class MemoryPool(ABC):
    """Memory that is kept for the next request while the pool is in force.

        with lab.memory_pool(limit="2 GB") as pool:
            for batch in batches:
                model(batch)
        pool.statistics

    Pools nest, in one thread or in several, and can be left in any order; one pool is entered once
    at a time. What still lives in it when it is left stays valid.
    """

    def __init__(self, name: str, limit_bytes: int | None) -> None:
        self.name, self.limit_bytes = name, limit_bytes
        self.trims = 0
        self._lock = Lock()
        self._is_entered = False
        self._suspensions = 0

    def __enter__(self) -> Self:
        with self._lock:
            if self._is_entered:
                raise PoolError(
                    f"{self.label} is in force already; leave it first, or make another one with "
                    "lab.memory_pool()."
                )
            self._is_entered = True
        try:
            self._begin()
        except BaseException:
            self._is_entered = False
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end(trim=True)
        self._is_entered = False

    @contextmanager
    def held(self, *, trim: bool = True) -> Iterator[None]:
        """In force for several calls, and given back after them, unless `trim` is off."""
        self._begin()
        try:
            yield
        finally:
            self._end(trim=trim)

    def during_call(self) -> AbstractContextManager[None]:
        """In force for a call; what it has freed stays for the next one."""
        return nullcontext() if self._suspensions else self.held(trim=False)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Calls run without the pool, to compare."""
        with self._lock:
            self._suspensions += 1
        try:
            yield
        finally:
            with self._lock:
                self._suspensions -= 1

    @property
    def label(self) -> str:
        """The pool in a sentence."""
        return f"the memory pool '{self.name}'" if self.name else "the memory pool"

    @property
    @abstractmethod
    def statistics(self) -> MemoryPoolUse:
        """What is allocated and kept now, and what the pool has done so far."""

    @abstractmethod
    def trim(self) -> None:
        """Give back what is kept."""

    @abstractmethod
    def _begin(self) -> None:
        """Be in force, once more."""

    @abstractmethod
    def _end(self, *, trim: bool) -> None:
        """Be in force once less; the last time, restore what was before."""

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """The pool itself: copies of a model share it."""
        return self

    def __repr__(self) -> str:
        return str(self.statistics)

    def _repr_html_(self) -> str:
        return self.statistics._repr_html_()
