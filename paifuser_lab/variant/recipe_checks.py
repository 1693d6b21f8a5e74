"""Validate a recipe's steps, options, limit and order; errors name the line of the file."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .._files import is_encodable
from ..errors import RecipeError
from ..records import Limit
from ..steps import Step, step_class
from .yaml_text import Lines, error_at

VERSION = 1
KEYS = ("version", "workload", "limit", "steps")


Key = tuple[str | int, ...]


class _KeyProblem(RecipeError):
    """An error of a step or of the limit, with the path of the key that is wrong."""

    def __init__(self, message: str, key: Key) -> None:
        super().__init__(message)
        self.key = key


def _key_of(error: ErrorDetails) -> Key:
    return tuple(part for part in error["loc"] if isinstance(part, str | int))


def step_of(item: Any, where: str) -> Step:
    """Parse a step: a Step, a name, or a mapping of a name to options or to the main one alone."""
    if isinstance(item, Step):
        return item
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        raise RecipeError(
            f"{where} is {item!r}; a step is a name with its options, such as fold: {{}}"
        )
    kind, options = next(iter(item.items()))
    step = step_class(str(kind))
    if options is None:
        options = {}
    elif step.main_option and type(options) in (str, int, float):
        options = {step.main_option: options}
    if not isinstance(options, dict):
        raise _KeyProblem(
            f"the options of '{kind}' are {options!r}; write them as keys and values", (kind,)
        )
    try:
        return step.model_validate(options)
    except ValidationError as error:
        raise _problem(error, step) from error


def _problem(error: ValidationError, step: type[Step]) -> _KeyProblem:
    first = error.errors()[0]
    key = _key_of(first)
    name = ".".join(map(str, key))
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(field.alias or option for option, field in step.model_fields.items())
        return _KeyProblem(
            f"step '{step.kind}' has no option '{name}'; it has {allowed}", (step.kind, *key)
        )
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return _KeyProblem(
        f"step '{step.kind}', {name + ' = ' if name else ''}{first['input']!r}: {message}",
        (step.kind, *key),
    )


def line_of(error: RecipeError, lines: Lines, index: int) -> int:
    """The line of the recipe file that a step's error refers to."""
    key = error.key if isinstance(error, _KeyProblem) else ()
    while ("steps", index, *key) not in lines:
        key = key[:-1]
    return lines[("steps", index, *key)]


def check_frame(data: Any, lines: Lines, text: str) -> None:
    """Raise unless the file is a mapping with known keys, a known version and a list of steps."""
    if not isinstance(data, dict):
        raise RecipeError(
            "A recipe is a mapping with the keys version, workload and steps; this is not one."
        )
    for key in data:
        if key not in KEYS:
            raise error_at(
                text,
                lines[(key,)],
                f"a recipe has no key '{key}'; it has {', '.join(KEYS[:-1])} and {KEYS[-1]}",
            )
    if data.get("version") is not VERSION:  # neither 1.0 nor true
        line = lines.get(("version",), 1)
        raise error_at(
            text,
            line,
            f"version {data.get('version')!r} is unknown; this program reads version {VERSION}",
        )
    if not isinstance(data.get("workload"), str | None):
        raise error_at(text, lines[("workload",)], "the workload is a name")
    if "steps" not in data or not isinstance(data["steps"], list | None):
        raise error_at(
            text, lines.get(("steps",), 1), "steps is a list, each item a step with its options"
        )


def checked_name(workload: str | None) -> str | None:
    """Raise unless a workload's name is None or can be written into a file."""
    if workload is not None and not is_encodable(workload):
        raise RecipeError(
            f"The workload's name {workload!r} cannot be written into a file; remove the lone "
            "surrogate."
        )
    return workload


def limit_of(data: Any) -> Limit:
    """Parse a limit."""
    try:
        return Limit.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = _key_of(first)
        name = ".".join(("limit", *map(str, key)))
        allowed = " and ".join(Limit.model_fields)
        raise _KeyProblem(
            f"{name} is {first['input']!r} ({first['msg']}); a limit has {allowed}", key
        ) from error


def limit_at(data: Any, lines: Lines, text: str) -> Limit:
    """Parse a limit read from a file; an error names its line."""
    try:
        return limit_of(data)
    except _KeyProblem as problem:
        line = lines.get(("limit", *problem.key), lines[("limit",)])
        raise error_at(text, line, str(problem)) from problem


def check_order(steps: tuple[Step, ...]) -> None:
    """Raise unless steps that change layers come before those that must follow them; a step that
    changes none, such as a pool, may stand between any.
    """
    for step in steps[:-1]:
        if step.is_last:
            raise RecipeError(
                f"'{step.kind}' stands before other steps; no step can follow it, so put it last."
            )
    for step, after in pairwise(step for step in steps if step.is_last or not step.leaves_module):
        if order_of(step) > order_of(after):
            raise RecipeError(
                f"'{step.kind}' stands before '{after.kind}', which changes layers; put "
                f"'{after.kind}' before it."
            )


def order_of(step: Step) -> int:
    """0 for a step that changes layers, 1 if it must follow those, 2 if it must be last."""
    return 2 if step.is_last else 1 if step.is_late else 0
