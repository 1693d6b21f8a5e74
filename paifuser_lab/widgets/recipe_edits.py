"""Edits of a recipe that several sections share, and the names of saved files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from itertools import count
from pathlib import Path
from typing import Any

from ..variant.recipe import Recipe


def with_options(recipe: Recipe, kind: str, options: Mapping[str, Any] | None) -> Recipe:
    """The recipe in which the step of a kind has these options, in its place; None removes it."""
    indices = [index for index, step in enumerate(recipe) if step.kind == kind]
    if options is not None and not indices:
        return recipe.with_step({kind: dict(options)})
    steps: list[Any] = [step for index, step in enumerate(recipe) if index not in indices[1:]]
    if indices:
        steps[indices[0] : indices[0] + 1] = [] if options is None else [{kind: dict(options)}]
    return recipe.of(steps)


def without_layers(recipe: Recipe, kind: str, layers: Set[str], *, alone: Sequence[str]) -> Recipe:
    """The recipe without these layers; a step goes when no layer and none of `alone` is left."""
    steps: list[Any] = []
    for step in recipe:
        options = step.options
        if step.kind != kind or layers.isdisjoint(options.get("layers", {})):
            steps.append(step)
            continue
        options["layers"] = {
            key: value for key, value in options["layers"].items() if key not in layers
        }
        if options["layers"] or any(name in options for name in alone):
            steps.append({kind: options})
    return recipe.of(steps)


def without(recipe: Recipe, index: int, label: str = "") -> Recipe:
    """The recipe without the step at an index, or, as it may have moved, the nearest of a label."""
    labelled = [at for at, step in enumerate(recipe) if step.label == label]
    removed = min(labelled, key=lambda at: abs(at - index), default=None) if label else index
    return recipe.of([step for at, step in enumerate(recipe) if at != removed])


def file_name(workload: str) -> str:
    """A model's name as the beginning of a file's."""
    return re.sub(r"[^\w.-]+", "_", workload).strip("._") or "model"


def saved_as_new(recipe: Recipe) -> str:
    """Save the recipe as recipe.yaml, or recipe-2.yaml where that holds something else."""
    for number in count(1):
        path = Path("recipe.yaml" if number == 1 else f"recipe-{number}.yaml")
        if not path.exists():
            return recipe.save(path).name
        if path.is_file() and path.read_bytes() == recipe.to_text().encode():
            break
    return path.name
