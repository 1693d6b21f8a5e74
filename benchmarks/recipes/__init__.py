"""Applies random recipes to many models and checks that every invariant of the loop holds.

draw         a random recipe, from the schemas of the steps
invariants   the models; model untouched, exact undo, reproducible hash; a saved folder in a fresh
             process
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from paifuser_lab.bench.runner import BenchRecord, Words
from paifuser_lab.machine import threads
from paifuser_lab.progress import progress

from .draw import random_recipe
from .invariants import RecipeRow, Saved, check, loaded, subject, subjects

__all__ = ["RecipeRow", "RecipesBench", "bench", "random_recipe", "subject", "subjects"]

BLOCK = 8  # consecutive recipes of one model, loaded by one fresh process


class RecipesBench(BenchRecord):
    """The results of `python -m benchmarks recipes`."""

    seed: int
    rows: tuple[RecipeRow, ...]

    @property
    def title(self) -> str:
        return f"{len(self.rows)} random recipes from seed {self.seed}, on {self.machine}"

    @property
    def violations(self) -> tuple[RecipeRow, ...]:
        """The recipes that violated an invariant."""
        return tuple(row for row in self.rows if row.verdict == "violated")

    @property
    def is_good(self) -> bool:
        """Whether none did."""
        return not self.violations

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
                "recipe": " ".join(row.recipe.split("steps:", 1)[-1].split()),
                "violated": row.note,
            }
            for row in self.violations
        ] or [{"model": "no recipe violated an invariant"}]


def bench(
    names: Words = None,
    *,
    count: Annotated[int, typer.Option(help="How many recipes.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="The seed of the random recipes.", min=0)] = 0,
) -> RecipesBench:
    """Apply random recipes: own model untouched, undo to the bit, the same hash twice, saved =
    loaded in a fresh process.
    """
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
    return RecipesBench(seed=seed, rows=tuple(rows))


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
