"""Which runs a sweep has: the product of the values of each parameter, checked against what the
notebook declares.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ...errors import PaifuserError, RecipeError
from ...recipe.yaml_text import parse
from ...records import Value
from ..notebook import check_parameters, declared

RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
MOST_RUNS = 10_000
LONGEST_NAME = 50  # characters, of up to four bytes, of the 255 that a file system gives


@dataclass(frozen=True)
class Run:
    """One run to be: its folder's name and its parameters."""

    name: str
    parameters: dict[str, Value]


def values_of(texts: Sequence[str]) -> dict[str, list[Value]]:
    """What stands behind each `-p`, by name."""
    found: dict[str, list[Value]] = {}
    for name, values in map(_values_of, texts):
        if name in found:
            raise PaifuserError(f"'{name}' is given twice; give all its values at once.")
        found[name] = values
    return found


def _values_of(text: str) -> tuple[str, list[Value]]:
    """`ratio=0.3,0.5` or `seed=0..4` as a name and its values; words with commas stand in
    quotes.
    """
    name, sign, listed = text.partition("=")
    if not sign or not name.strip() or not listed.strip():
        raise PaifuserError(
            f"{text!r} gives no values to a parameter; write name=value,value or name=low..high."
        )
    try:
        values, _ = parse(f"[{listed}]")
    except RecipeError as error:
        raise PaifuserError(
            f"The values of '{name}' cannot be read; put words with commas or brackets in quotes: "
            f"{listed}"
        ) from error
    found: list[Value] = []
    for value in values:
        if isinstance(value, list | dict):
            raise PaifuserError(f"'{name}' is given {value!r}; each value is a number or a word.")
        found += _range(name, value)
    return name.strip(), found


def _range(name: str, value: Value) -> list[Value]:
    match = RANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return [value]
    low, high = int(match[1]), int(match[2])
    if not low <= high < low + MOST_RUNS:
        raise PaifuserError(
            f"'{name}' runs from {low} to {high}; a range rises, by fewer than {MOST_RUNS:,} steps."
        )
    return list(range(low, high + 1))


def runs_of(notebook: Path, values: Mapping[str, Sequence[Value]]) -> list[Run]:
    """Every combination; a parameter that the notebook lacks, or a word where it has a number, is
    refused.
    """
    if "out" in values:
        raise PaifuserError("The sweep itself chooses each run's 'out'; leave it out.")
    if empty := [name for name, listed in values.items() if not listed]:
        raise PaifuserError(f"'{empty[0]}' is given no value.")
    check_parameters(notebook, values)
    fitting = {
        name: [_fitting(notebook, name, value) for value in listed]
        for name, listed in values.items()
    }
    runs = [dict(zip(fitting, chosen, strict=True)) for chosen in product(*fitting.values())]
    if len(runs) > MOST_RUNS:
        raise PaifuserError(
            f"These are {len(runs):,} runs, past the limit of {MOST_RUNS:,}; give fewer values."
        )
    named = {_name(one): Run(_name(one), one) for one in runs}
    return list(named.values())


def _fitting(notebook: Path, name: str, value: Value) -> Value:
    """The value as the kind of thing that the notebook declares."""
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
            f"{notebook.name} has {name} = {default!r}; {value!r} is no whole number."
        )
    return value


def _kind(value: Value) -> str:
    return "neither true nor false" if not isinstance(value, bool) else "no number"


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # computed by an expression: it may be anything
        return None


def _name(parameters: Mapping[str, Value]) -> str:
    """A folder's name with the values; what a file system would not take, or is long, is replaced
    by a hash.
    """
    text = ",".join(f"{name}={value}" for name, value in parameters.items()) or "as it is"
    plain = re.sub(r"[^\w.,=+ -]", "_", text)
    if plain == text and len(text) <= LONGEST_NAME:
        return text
    return f"{plain[:LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
