"""Applies random recipes to many models and checks that every invariant of the loop holds.

draw         a random recipe, from the schemas of the steps
subjects     the models
invariants   checks within one process: model untouched, exact undo, reproducible hash
fresh        checks in another process: a saved folder loads bit for bit
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from paifuser_lab.machine import machine_label, threads
from paifuser_lab.progress import progress
from paifuser_lab.records import Record

from .draw import random_recipe
from .fresh import loaded
from .invariants import RecipeRow, Saved, check
from .subjects import subject, subjects

__all__ = ["RecipeRow", "RecipesBench", "bench", "random_recipe", "subject", "subjects"]

BLOCK = 8  # consecutive recipes of one model, loaded by one fresh process


class RecipesBench(Record):
    """The results of `python -m benchmarks recipes`."""

    machine: str
    seed: int
    rows: tuple[RecipeRow, ...]

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"{len(self.rows)} random recipes from seed {self.seed}, on {self.machine}"

    @property
    def violations(self) -> tuple[RecipeRow, ...]:
        """The recipes that violated an invariant."""
        return tuple(row for row in self.rows if row.verdict == "violated")

    @property
    def summary(self) -> str:
        """How many held, were refused, and were violated."""
        counts = Counter(row.verdict for row in self.rows)
        models = len({row.model for row in self.rows})
        return (
            f"{counts['holds']} hold, {counts['refused']} refused, {counts['violated']} violated, "
            f"on {models} models"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each violation; the counts are in the summary."""
        return [
            {
                "model": row.model,
                "seed": str(row.seed),
                "recipe": _short(row.recipe),
                "violated": row.note,
            }
            for row in self.violations
        ] or [{"model": "no recipe violated an invariant"}]


def bench(names: Sequence[str] = (), *, count: int = 300, seed: int = 0) -> RecipesBench:
    """Draw recipes, apply them to the models in turn, and check every invariant."""
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
    return RecipesBench(machine=machine_label(), seed=seed, rows=tuple(rows))


def _rows(chosen: Sequence[str], count: int, seed: int, folder: Path) -> Iterator[RecipeRow]:
    """Recipes in blocks of one model, which is built once and loaded by one fresh process."""
    for first in range(0, count, BLOCK):
        work = subject(chosen[first // BLOCK % len(chosen)])
        waiting: list[Saved] = []
        for index in range(first, min(first + BLOCK, count)):
            own_seed = seed * 1_000_003 + index
            recipe = random_recipe(work, own_seed)
            result = check(work, recipe, own_seed, folder / str(index))
            if isinstance(result, Saved):
                waiting.append(result)
            else:
                yield result
        yield from loaded(waiting)


def _short(recipe: str) -> str:
    return " ".join(
        line.strip() for line in recipe.split("steps:", 1)[-1].splitlines() if line.strip()
    )
