"""Random recipes on many models: whether the promises of the loop hold for any of them.

draw         a random recipe, from the schemas of the steps
subjects     the models
invariants   promises that one process can check: model untouched, undo to the bit, one hash
fresh        promises that take another process: a saved folder loads to the bit
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...machine import hardware, threads
from ...progress import progress
from ...records import Record
from .draw import random_recipe
from .fresh import loaded
from .invariants import RecipeRow, Saved, check
from .subjects import subject, subjects

__all__ = ["RecipeRow", "RecipesBench", "bench", "random_recipe", "subject", "subjects"]

AT_ONCE = 8  # recipes of one model in a row, loaded by one fresh process


class RecipesBench(Record):
    """What `paifuser-lab bench recipes` found."""

    machine: str
    seed: int
    rows: tuple[RecipeRow, ...]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{len(self.rows)} random recipes from seed {self.seed}, on {self.machine}"

    @property
    def violations(self) -> tuple[RecipeRow, ...]:
        """The recipes that broke a promise."""
        return tuple(row for row in self.rows if row.verdict == "violated")

    @property
    def summary(self) -> str:
        """How many held, were refused, and broke a promise."""
        counts = Counter(row.verdict for row in self.rows)
        models = len({row.model for row in self.rows})
        return (
            f"{counts['holds']} hold, {counts['refused']} refused, {counts['violated']} violated, "
            f"on {models} models"
        )

    def table(self) -> list[dict[str, str]]:
        """A row a recipe that broke a promise; the counts stand in the summary."""
        return [
            {
                "model": row.model,
                "seed": str(row.seed),
                "recipe": _short(row.recipe),
                "violated": row.note,
            }
            for row in self.violations
        ] or [{"model": "no recipe broke a promise"}]


def bench(names: Sequence[str] = (), *, count: int = 300, seed: int = 0) -> RecipesBench:
    """Draw recipes, apply them to the models in turn, and hold every promise."""
    chosen = [
        name
        for name in subjects()
        if not names or any(word.lower() in name.lower() for word in names)
    ]
    with threads(1), progress("recipes", count) as shown, tempfile.TemporaryDirectory() as folder:
        rows = []
        for row in _rows(chosen, count, seed, Path(folder)):
            rows.append(row)
            shown.advance(doing=row.model)
    return RecipesBench(machine=hardware().name, seed=seed, rows=tuple(rows))


def _rows(chosen: Sequence[str], count: int, seed: int, folder: Path) -> Iterator[RecipeRow]:
    """Blocks of recipes, a model a block, so that each is built once and loaded by one fresh
    process.
    """
    for first in range(0, count, AT_ONCE):
        work = subject(chosen[first // AT_ONCE % len(chosen)])
        waiting: list[Saved] = []
        for index in range(first, min(first + AT_ONCE, count)):
            own = seed * 1_000_003 + index
            found = check(work, random_recipe(work, own), own, folder / str(index))
            if isinstance(found, Saved):
                waiting.append(found)
            else:
                yield found
        yield from loaded(waiting)


def _short(recipe: str) -> str:
    return " ".join(
        line.strip() for line in recipe.split("steps:", 1)[-1].splitlines() if line.strip()
    )
