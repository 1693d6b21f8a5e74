"""The recipes of a session in the order they were chosen, with undo and redo, and a cache of their
records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from ..recipe import Recipe

MAX_RECORDS = 32  # comparisons, and as many profiles

T = TypeVar("T")


class History:
    """Past and undone recipes; the first is the empty recipe (the unchanged model) and stays."""

    def __init__(self, first: Recipe) -> None:
        self._past, self._future = [first], list[Recipe]()

    @property
    def first(self) -> Recipe:
        """The empty recipe: the unchanged model."""
        return self._past[0]

    @property
    def current(self) -> Recipe:
        """The chosen recipe."""
        return self._past[-1]

    def __len__(self) -> int:
        return len(self._past)

    @property
    def can_undo(self) -> bool:
        """Whether a recipe was chosen before the current one."""
        return len(self._past) > 1

    @property
    def can_redo(self) -> bool:
        """Whether a recipe was undone."""
        return bool(self._future)

    def push(self, recipe: Recipe) -> bool:
        """Choose a recipe and clear the redo list; False if it is already the current one, with
        the same limit.
        """
        if recipe == self.current and recipe.limit == self.current.limit:
            return False
        self._past.append(recipe)
        self._future.clear()
        return True

    def undo(self) -> bool:
        """Return to the previous recipe; False if there is none."""
        if self.can_undo:
            self._future.append(self._past.pop())
            return True
        return False

    def redo(self) -> bool:
        """Choose the last undone recipe again; False if there is none."""
        if self.can_redo:
            self._past.append(self._future.pop())
            return True
        return False

    def withdraw(self, recipe: Recipe, *, can_redo: bool) -> bool:
        """Remove the recipe if it is the current one; False if it is not."""
        if recipe != self.current or not self.can_undo:
            return False
        self._past.pop()
        self._future += [recipe] if can_redo else []
        return True


class RecordCache(Generic[T]):
    """Records by recipe. Past `MAX_RECORDS` the oldest is dropped, never the first recipe's."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._records: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, recipe: object) -> bool:
        return isinstance(recipe, Recipe) and recipe.digest in self._records

    def get(self, recipe: Recipe) -> T | None:
        """The record of a recipe; None if it is not cached."""
        return self._records.get(recipe.digest)

    def put(self, recipe: Recipe, record: T) -> None:
        """Cache the record of a recipe."""
        records, first = self._records, self._history.first.digest
        records[recipe.digest] = record
        records.move_to_end(recipe.digest)
        while len(records) > MAX_RECORDS:
            del records[next(digest for digest in records if digest != first)]

    def restate(self, change: Callable[[str, T], T]) -> None:
        """Replace each record by what `change` makes of it and of its recipe's digest."""
        for digest, record in self._records.items():
            self._records[digest] = change(digest, record)

    def of_digest(self, digest: str) -> T | None:
        """The record of the recipe with this digest; None if it is not cached."""
        return self._records.get(digest)

    def drop(self, recipe: Recipe) -> None:
        """Remove the record of a recipe."""
        self._records.pop(recipe.digest, None)
