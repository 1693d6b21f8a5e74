"""Edits of a recipe that several clicks lead to: options of a step, a choice for some layers taken
back, and a step that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ..recipe import Recipe


def with_options(recipe: Recipe, kind: str, options: Mapping[str, Any] | None) -> Recipe:
    """The recipe in which the step of a kind has these options, where it stood; None takes the step
    away.
    """
    places = [place for place, step in enumerate(recipe) if step.kind == kind]
    if options is not None and not places:
        return recipe.with_step({kind: dict(options)})
    steps: list[Any] = [step for place, step in enumerate(recipe) if place not in places[1:]]
    if places:
        steps[places[0] : places[0] + 1] = [] if options is None else [{kind: dict(options)}]
    return recipe.of(steps)


def without_layers(recipe: Recipe, kind: str, layers: Set[str], *, alone: Sequence[str]) -> Recipe:
    """The recipe with what was chosen for some layers taken back; a step that says nothing more,
    not even one of `alone`, goes.
    """
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
    """The recipe without its step of that place; where it has moved since somebody saw it there, it
    is found by what it is called.
    """
    called = [place for place, step in enumerate(recipe) if step.label == label]
    gone = min(called, key=lambda place: abs(place - index), default=None) if label else index
    return recipe.of([step for place, step in enumerate(recipe) if place != gone])
