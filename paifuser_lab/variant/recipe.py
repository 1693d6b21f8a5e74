"""An ordered list of steps as plain data, read from and written to YAML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

from .._files import read_text, write_text
from ..errors import RecipeError
from ..records import Comparison, Limit
from ..steps import Step
from .recipe_checks import (
    VERSION,
    check_frame,
    check_order,
    checked_name,
    limit_at,
    limit_of,
    line_of,
    order_of,
    step_of,
)
from .yaml_text import LIMIT_CHARACTERS, dump, error_at, parse

MAX_QUOTED = 80
RecipeKey = tuple[str, tuple[type[Step], ...]]


class Recipe:
    """The steps to apply to a model, in order:
    `Recipe([{"fold": {}}, {"backend": {"name": "onnxruntime"}}])`.

    A recipe is immutable; `recipe + step` and `recipe[:-1]` return new ones.
    """

    def __init__(
        self,
        steps: Iterable[Step | dict[str, Any] | str] = (),
        *,
        workload: str | None = None,
        limit: Limit | dict[str, float] | None = None,
        evidence: Comparison | None = None,
    ) -> None:
        if isinstance(steps, str | dict):
            raise RecipeError(f"{steps!r} is not a list of steps; write Recipe([{steps!r}]).")
        if not isinstance(steps, Iterable):
            raise RecipeError(
                f"A {type(steps).__name__} is not a list of steps; write "
                "Recipe([{'fold': {}}])."
            )
        if not isinstance(workload, str | None):
            raise RecipeError(
                f"The workload of a recipe is a name, not a {type(workload).__name__}; give "
                "work.name."
            )
        self.steps: tuple[Step, ...] = tuple(
            step_of(step, f"step {index}") for index, step in enumerate(steps, 1)
        )
        self.workload = checked_name(workload)
        # a variant past the limit is marked as refused
        self.limit = limit if isinstance(limit, Limit) else limit_of(limit or {})
        # the measurements by which the planner chose the recipe; not saved
        self.evidence = evidence
        check_order(self.steps)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a recipe from a YAML file."""
        # a character is at most 4 bytes
        return cls.from_text(read_text(path, limit_bytes=4 * LIMIT_CHARACTERS))

    @classmethod
    def from_text(cls, text: str) -> Recipe:
        """Read a recipe from YAML text; an error names its line."""
        data, lines = parse(text)
        check_frame(data, lines, text)
        steps = []
        for index, item in enumerate(data["steps"] or []):
            try:
                steps.append(step_of(item, f"step {index + 1}"))
            except RecipeError as error:
                raise error_at(text, line_of(error, lines, index), str(error)) from error
        limit = limit_at(data["limit"], lines, text) if "limit" in data else None
        try:
            return cls(steps, workload=data.get("workload"), limit=limit)
        except RecipeError as error:
            raise error_at(text, lines[("steps",)], str(error)) from error

    def save(self, path: str | Path) -> Path:
        """Write the recipe as YAML."""
        return write_text(path, self.to_text())

    def to_text(self) -> str:
        """The recipe as YAML."""
        head: dict[str, Any] = {"version": VERSION} | (
            {"workload": str(self.workload)} if self.workload else {}
        )
        head |= {"limit": limit} if (limit := self.limit.model_dump(exclude_defaults=True)) else {}
        steps = [
            {step.kind: step.options | ({"why": step.why} if step.why else {})}
            for step in self.steps
        ]
        lines = [dump(head), "steps:" if steps else "steps: []"]
        lines += [
            f"  - {dump(step, flow=True).removeprefix('{').removesuffix('}')}" for step in steps
        ]
        return "\n".join(lines) + "\n"

    def as_code(self, load: str | None = None) -> str:
        """Python code that builds and applies it. `load` makes `work`, by default by the name of
        the recipe's workload; '' where there is one.
        """
        steps = "".join(f"    { ({step.kind: step.options})!r},\n" for step in self.steps)
        if load is None:
            load = f"work = lab.load({self.workload!r})\n" if self.workload else ""
        workload = f", workload={self.workload!r}" if self.workload else ""
        limit = (
            f", limit={changed!r}"
            if (changed := self.limit.model_dump(exclude_defaults=True))
            else ""
        )
        apply = "variant = lab.apply(work, recipe)\n"
        return (
            f"import paifuser_lab as lab\n\n{load}recipe = "
            f"lab.Recipe([\n{steps}]{workload}{limit})\n{apply}"
        )

    def explain(self) -> str:
        """One line per step: its label, and its reason if it has one."""
        return "\n".join(
            f"{index}. {step.label}{': ' + step.why if step.why else ''}"
            for index, step in enumerate(self.steps, 1)
        )

    @property
    def digest(self) -> str:
        """A hash of the steps and their options; reasons and the workload's name are left out."""
        return hashlib.sha256("\n".join(_texts(self)).encode()).hexdigest()

    @property
    def key(self) -> RecipeKey:
        """The digest with the classes of the steps, by which results are kept in a process: a step
        that was edited in a notebook is another one.
        """
        return self.digest, tuple(type(step) for step in self.steps)

    @property
    def label(self) -> str:
        """The labels of the steps in one line."""
        return " → ".join(step.label for step in self.steps) or "as it is"

    def of(self, steps: Iterable[Step | dict[str, Any] | str]) -> Recipe:
        """A recipe of other steps with the same workload and limit."""
        return Recipe(steps, workload=self.workload, limit=self.limit)

    def __add__(self, step: Step | dict[str, Any] | str) -> Recipe:
        return self.of((*self.steps, step))

    def with_step(self, step: Step | dict[str, Any] | str) -> Recipe:
        """The recipe with one more step: merged with a step of the same kind if they can be merged,
        else inserted before the steps that must come later.
        """
        new = step_of(step, "the step")
        steps = list(self.steps)
        same_kind = [index for index, old in enumerate(steps) if old.kind == new.kind]
        # each late step overrides those before it, so only the last can be merged
        for index in same_kind[-1:] if new.is_late else same_kind:
            if (joined := steps[index].joined(new)) is not None:
                steps[index] = joined
                return self.of(steps)
        later = (index for index, old in enumerate(steps) if order_of(old) > order_of(new))
        end = next(later, len(steps))
        return self.of((*steps[:end], new, *steps[end:]))

    @overload
    def __getitem__(self, which: int) -> Step: ...
    @overload
    def __getitem__(self, which: slice) -> Recipe: ...
    def __getitem__(self, which: int | slice) -> Step | Recipe:
        return self.of(self.steps[which]) if isinstance(which, slice) else self.steps[which]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Recipe)
            and self.steps == other.steps
            and _texts(self) == _texts(other)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Recipe({self.label})"


def checked_recipe(recipe: object) -> Recipe:
    """Raise unless the argument is a Recipe; the message shows how to make one."""
    if isinstance(recipe, Recipe):
        return recipe
    short = isinstance(recipe, str | list | dict | Step) and len(repr(recipe)) < MAX_QUOTED
    steps = "[…]" if not short else repr(recipe) if isinstance(recipe, list) else f"[{recipe!r}]"
    raise RecipeError(
        f"A {type(recipe).__name__} is not a recipe; write lab.Recipe({steps}), or "
        "lab.Recipe.load(file) for a saved one."
    )


def _texts(recipe: Recipe) -> list[str]:
    # the patterns in a step's option keep their order, since a later one wins
    return [
        f"{step.kind}: {json.dumps(dict(sorted(step.options.items())))}" for step in recipe.steps
    ]


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
    {"distill": {"epochs": 2}}. Only the last round rounds the widths, unless the target is a
    latency: rounded in each, a narrow layer would lose no channel in any, or too many in the
    first.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise RecipeError(f"rounds={rounds!r} is not possible; give an integer of 1 or more.")
    Recipe([{"prune": dict(prune)}])  # so that an error names the given options, not a round's
    after = [] if between is None else [between if isinstance(between, str) else dict(between)]
    steps: list[Any] = []
    for number in range(1, rounds + 1):
        steps += [{"prune": _in_round(prune, number, rounds)}, *after]
    return Recipe(steps, workload=workload, limit=limit)


def _in_round(prune: Mapping[str, Any], number: int, rounds: int) -> dict[str, Any]:
    """The step's options in one round. A ratio refers to the current model and is the same in each
    round; a target refers to the original and falls.
    """
    options = dict(prune)
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
    if number < rounds and "latency" not in (prune.get("to") or {}):
        options["round_to"] = 1
    return options


def _ratio_per_round(ratio: float, rounds: int) -> float:
    return ratio if rounds == 1 else _rounded(1 - (1 - ratio) ** (1 / rounds))


def _rounded(share: float) -> float:
    """Round to six digits: enough for channels, and readable in a recipe."""
    return round(share, 6)
