"""Recipes of several rounds: cut a little, train, and cut again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RecipeError
from ..records import Limit
from .recipe import Recipe

Options = dict[str, Any]


def gradually(
    prune: Mapping[str, Any],
    between: Mapping[str, Any] | str | None = None,
    *,
    rounds: int = 4,
    workload: str | None = None,
    limit: Limit | dict[str, float] | None = None,
) -> Recipe:
    """A recipe that prunes in several rounds, with what makes up for it after each:
    `gradually({"to": {"parameters": 0.1}}, "distill")`.

    `prune` holds the options of that step as they are to be in the end. Each round leaves the same
    share of what the round before left: to a tenth in two rounds is to 32%, then to 10% of the
    original, and a ratio of 0.75 in two rounds is one of 0.5 twice. `between` is a step as a recipe
    has it, such as {"distill": {"epochs": 2}}.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise RecipeError(f"{rounds!r} rounds prune nothing; give an integer of 1 or more.")
    Recipe([{"prune": dict(prune)}])  # an error in the options names them, not a round
    after = [] if between is None else [between if isinstance(between, str) else dict(between)]
    steps: list[Any] = []
    for number in range(1, rounds + 1):
        steps += [{"prune": _in_round(prune, number, rounds)}, *after]
    return Recipe(steps, workload=workload, limit=limit)


def _in_round(prune: Mapping[str, Any], number: int, rounds: int) -> Options:
    """The step's options in one round. A ratio is of what there is, and is the same in each; a
    target is of the original, and falls.
    """
    found: Options = dict(prune)
    if prune.get("ratio") is not None:
        found["ratio"] = _each(prune["ratio"], rounds)
    if prune.get("layers"):
        found["layers"] = {
            pattern: _each(ratio, rounds) for pattern, ratio in prune["layers"].items()
        }
    if prune.get("to"):
        found["to"] = {
            goal: _figure(share ** (number / rounds)) if number < rounds else share
            for goal, share in prune["to"].items()
        }
    return found


def _each(ratio: float, rounds: int) -> float:
    return ratio if rounds == 1 else _figure(1 - (1 - ratio) ** (1 / rounds))


def _figure(share: float) -> float:
    """Six figures are enough for channels, and read better in a recipe."""
    return round(share, 6)
