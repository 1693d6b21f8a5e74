"""Recipes of gradual pruning: prune a little, train, prune again."""

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
    """A recipe that prunes in several rounds with a recovery step after each:
    `gradually({"to": {"parameters": 0.1}}, "distill")`.

    `prune` holds the options of that step for the final model. Each round keeps the same share of
    the round before: to a tenth in two rounds is to 32%, then to 10% of the original, and a ratio
    of 0.75 in two rounds is one of 0.5 twice. `between` is a step as in a recipe, such as
    {"distill": {"epochs": 2}}.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise RecipeError(f"rounds={rounds!r} is not possible; give an integer of 1 or more.")
    Recipe(
        [{"prune": dict(prune)}]
    )  # so that an error names the given options, not those of a round
    after = [] if between is None else [between if isinstance(between, str) else dict(between)]
    steps: list[Any] = []
    for number in range(1, rounds + 1):
        steps += [{"prune": _in_round(prune, number, rounds)}, *after]
    return Recipe(steps, workload=workload, limit=limit)


def _in_round(prune: Mapping[str, Any], number: int, rounds: int) -> Options:
    """The step's options in one round. A ratio refers to the current model and is the same in each
    round; a target refers to the original and falls.
    """
    options: Options = dict(prune)
    if prune.get("ratio") is not None:
        options["ratio"] = _ratio_per_round(prune["ratio"], rounds)
    if prune.get("layers"):
        options["layers"] = {
            pattern: _ratio_per_round(ratio, rounds) for pattern, ratio in prune["layers"].items()
        }
    if prune.get("to"):
        options["to"] = {
            goal: _rounded(share ** (number / rounds)) if number < rounds else share
            for goal, share in prune["to"].items()
        }
    return options


def _ratio_per_round(ratio: float, rounds: int) -> float:
    return ratio if rounds == 1 else _rounded(1 - (1 - ratio) ** (1 / rounds))


def _rounded(share: float) -> float:
    """Round to six digits: enough for channels, and readable in a recipe."""
    return round(share, 6)
