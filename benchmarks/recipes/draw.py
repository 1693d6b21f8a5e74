"""Random recipes for a workload, drawn from the schemas of the steps, so that a new step is drawn
without a change here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from paifuser_lab.errors import RecipeError
from paifuser_lab.steps import step_class, step_names
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload

MAX_STEPS = 4
CHANGED = 0.4  # share of options that differ from their defaults
TRIES = 50  # draws of one step, since options can contradict each other
NEEDS_DATA = ("distill", "qat")
# free text; and a target in latency depends on the clock, so that two runs may differ
NOT_DRAWN = ("why", "to")
# Values that a schema does not bound, or that keep a run short.
VALUES: dict[tuple[str, str], Sequence[Any]] = {
    ("backend", "name"): ("eager", "eager", "onnxruntime"),
    ("backend", "threads"): (1,),
    ("backend", "freeze"): (False,),
    ("backend", "optimization"): ("all", "all", "basic"),
    ("backend", "parallel"): (False, False, True),
    ("backend", "arena"): (True, True, False),
    ("attention", "keep"): (0.1, 0.3, 0.7, 2, 4),
    ("prune", "round_to"): (1, 2, 4),
    ("distill", "epochs"): (1,),
    ("qat", "epochs"): (1,),
    ("precision", "batches"): (1, 2),
    ("qat", "calibration_batches"): (1, 2),
}


def random_recipe(work: Workload, seed: int) -> Recipe:
    """A valid recipe of one to four steps; the workload may still refuse it."""
    generator = random.Random(seed)
    kinds = [kind for kind in step_names() if kind not in NEEDS_DATA or work.train is not None]
    chosen = generator.choices(kinds, k=generator.randint(1, MAX_STEPS))
    recipe = Recipe(workload=None)
    for kind in chosen:
        step = _random_step(kind, work, generator)
        try:
            recipe = recipe + step if generator.random() < 0.5 else recipe.with_step(step)
        except RecipeError:  # nothing can follow a backend, and fused layers are not changed
            is_new = all(other.kind != kind for other in recipe)
            recipe = recipe.with_step(step) if is_new else recipe
    return recipe


def _random_step(kind: str, work: Workload, generator: random.Random) -> dict[str, Any]:
    """A step whose options validate."""
    for _ in range(TRIES):
        step = {kind: _options(kind, work, generator)}
        try:
            Recipe([step])
        except RecipeError:
            continue
        return step
    raise RecipeError(
        f"No valid options of step '{kind}' were drawn in {TRIES} tries; add values for them to "
        "VALUES."
    )


@cache
def _schema(kind: str) -> dict[str, Any]:
    """The JSON schemas of a step's options."""
    properties: dict[str, Any] = step_class(kind).model_json_schema(by_alias=True)["properties"]
    return properties


def _options(kind: str, work: Workload, generator: random.Random) -> dict[str, Any]:
    drawn = {}
    for option, described in _schema(kind).items():
        if option in NOT_DRAWN or generator.random() > CHANGED:
            continue
        value = _value(kind, option, described, work, generator)
        if value is not None:
            drawn[option] = value
    return drawn


def _value(
    kind: str, option: str, schema: dict[str, Any], work: Workload, generator: random.Random
) -> Any:
    """A value that the schema allows; None if it is too unspecific to draw one."""
    if (kind, option) in VALUES:
        return generator.choice(VALUES[kind, option])
    if "anyOf" in schema:
        return _value(kind, option, schema["anyOf"][0], work, generator)
    if "enum" in schema:
        return generator.choice(schema["enum"])
    match schema.get("type"):
        case "boolean":
            return generator.random() < 0.5
        case "array":
            return _items(schema["items"], work, generator)
        case "object":
            values = schema["additionalProperties"]
            return {_pattern(work, generator): _value(kind, option, values, work, generator)}
        case "number":
            return _number(schema, generator)
    return None


def _items(schema: dict[str, Any], work: Workload, generator: random.Random) -> list[str]:
    if "enum" in schema:
        return generator.sample(schema["enum"], k=generator.randint(0, len(schema["enum"])))
    return [_pattern(work, generator) for _ in range(generator.randint(1, 2))]


def _number(schema: dict[str, Any], generator: random.Random) -> float | None:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None or high is None:
        return None
    return round(float(low + (high - low) * generator.uniform(0.05, 0.9)), 2)


def _pattern(work: Workload, generator: random.Random) -> str:
    """A layer's name, a pattern of its top-level module, or a pattern of all layers."""
    layers = [name for name, _ in work.model.named_modules() if name]
    layer = generator.choice(layers) if layers else "*"
    return generator.choice((layer, f"{layer.partition('.')[0]}*", "*"))
