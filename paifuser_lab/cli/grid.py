"""The runs of a sweep: every combination of values, checked against the notebook's parameters."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ..errors import PaifuserError, RecipeError
from ..records import Value
from ..variant.yaml_text import parse
from .notebook import check_parameters, declared

RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
MAX_RUNS = 10_000
MAX_NAME = 50  # characters of up to four bytes; file systems allow 255 bytes


@dataclass(frozen=True)
class Run:
    """One run of the sweep: its folder's name and its parameters."""

    name: str
    parameters: dict[str, Value]


def values_of(texts: Sequence[str]) -> dict[str, list[Value]]:
    """The values of each parameter, parsed from the texts of `-p`."""
    parameters: dict[str, list[Value]] = {}
    for name, values in map(_values_of, texts):
        if name in parameters:
            raise PaifuserError(f"'{name}' is given twice; give all its values at once.")
        parameters[name] = values
    return parameters


def _values_of(text: str) -> tuple[str, list[Value]]:
    """Parse `ratio=0.3,0.5` or `seed=0..4` into a name and its values; words with commas are
    quoted.
    """
    name, sign, listed = text.partition("=")
    name = name.strip()
    if not sign or not name.isidentifier() or not listed.strip():
        raise PaifuserError(
            f"{text!r} gives no values to a parameter; write name=value,value or name=low..high."
        )
    try:
        values, _ = parse(f"[{listed}]")
    except RecipeError as error:
        raise PaifuserError(
            f"The values of '{name}' cannot be read; put words with commas or brackets in quotes: "
            f"{listed!r}"
        ) from error
    expanded: list[Value] = []
    for value in values:
        if isinstance(value, list | dict):
            raise PaifuserError(f"'{name}' is given {value!r}; each value is a number or a word.")
        expanded += _range(name, value)
    return name, expanded


def _range(name: str, value: Value) -> list[Value]:
    match = RANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return [value]
    low, high = int(match[1]), int(match[2])
    if not low <= high < low + MAX_RUNS:
        raise PaifuserError(
            f"'{name}' runs from {low} to {high}; a range rises, by fewer than {MAX_RUNS:,} steps."
        )
    return list(range(low, high + 1))


def runs_of(notebook: Path, values: Mapping[str, Sequence[Value]]) -> list[Run]:
    """Every combination of the values; raises for undeclared parameters and wrong types."""
    if "out" in values:
        raise PaifuserError("The sweep itself chooses each run's 'out'; leave it out.")
    check_parameters(notebook, values)
    converted = {
        name: [_converted(notebook, name, value) for value in listed]
        for name, listed in values.items()
    }
    runs = [dict(zip(converted, chosen, strict=True)) for chosen in product(*converted.values())]
    if len(runs) > MAX_RUNS:
        raise PaifuserError(
            f"These are {len(runs):,} runs, past the limit of {MAX_RUNS:,}; give fewer values."
        )
    by_name = {_name(parameters): Run(_name(parameters), parameters) for parameters in runs}
    return list(by_name.values())


def _converted(notebook: Path, name: str, value: Value) -> Value:
    """The value as the type of the notebook's default; raises if it cannot be converted."""
    default = _literal(declared(notebook)[name]["default"])
    if isinstance(default, str):
        return value if isinstance(value, str) else str(value)
    if (
        isinstance(default, bool) != isinstance(value, bool)
        and default is not None
        and value is not None
    ):
        raise PaifuserError(
            f"{notebook.name} has {name} = {default!r}; {value!r} is {_kind(value)}."
        )
    if isinstance(default, int | float) and isinstance(value, str):
        raise PaifuserError(f"{notebook.name} has {name} = {default!r}; {value!r} is no number.")
    if type(default) is int and isinstance(value, float):
        raise PaifuserError(
            f"{notebook.name} has {name} = {default!r}; {value!r} is not an integer."
        )
    return value


def _kind(value: Value) -> str:
    return "neither true nor false" if not isinstance(value, bool) else "no number"


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # computed by an expression: of any type
        return None


def _name(parameters: Mapping[str, Value]) -> str:
    """The folder's name, made of the values; where they are long or have characters that file
    systems refuse, it is shortened and ends in a hash.
    """
    text = ",".join(f"{name}={value}" for name, value in parameters.items()) or "as it is"
    plain = re.sub(r"[^\w.,=+ -]", "_", text)
    if plain == text and len(text) <= MAX_NAME:
        return text
    return f"{plain[:MAX_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
