"""The time for building what is compared: a recipe that would not be built in time is left out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import StepError
from .recipe import Recipe


@dataclass
class Building:
    """When building has to end, and how long the last recipe with each last step took."""

    until: float
    took_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    @contextmanager
    def of(self, recipe: Recipe) -> Iterator[None]:
        """Time the building of a recipe; raise where it would not end in time."""
        kind = _kind(recipe)
        began = time.perf_counter()
        usual_s = self.took_s.get(kind, 0.0)
        if self.took_s and began + usual_s > self.until:  # the first is built in any case
            raise StepError("not built: the seconds do not suffice; give more")
        try:
            yield
        finally:
            self.took_s[kind] = time.perf_counter() - began


def _kind(recipe: Recipe) -> tuple[str, ...]:
    """Recipes of one kind take equally long: the same engine after the same steps."""
    kinds = [step.kind for step in recipe]
    return (*kinds, *(str(step.options.get("name")) for step in recipe if step.kind == "backend"))
