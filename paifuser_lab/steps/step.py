"""What a step is, and the draft that it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from ..errors import RecipeError
from ..workload import Workload


@dataclass
class Draft:
    """The copy that a recipe is being applied to.

    `module` holds the weights and always runs eagerly; `engine`, where a step set one, outputs
    calls in its stead.
    """

    work: Workload
    module: nn.Module
    engine: nn.Module | None = None
    threads: int = field(default_factory=torch.get_num_threads)
    notes: list[str] = field(default_factory=list)
    remembered: dict[str, Any] = field(
        default_factory=dict
    )  # what the step needs to be done again without choosing; plain data
    earlier: tuple[
        Step, ...
        # the recipe's steps that were applied before; known while a step is applied, not when
        # rebuilt
    ] = ()
    should_stop: Callable[[], bool] = lambda: (
        False
    )  # what takes long asks now and then, and raises StoppedError

    @property
    def model(self) -> nn.Module:
        """What outputs calls."""
        return self.module if self.engine is None else self.engine


class Step(BaseModel):
    """One change of a model, as plain data.

    A new kind of step is one file with one subclass, and one line in the registry (or an entry
    point of another package).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    kind: ClassVar[str]
    tolerance: ClassVar[float | None] = (
        None  # the relative L2 error that an exact step may make against the draft before it
    )
    is_last: ClassVar[bool] = False  # no step can come after it
    is_late: ClassVar[bool] = (
        False  # it takes the layers as they are: after it comes only what is last
    )
    leaves_module: ClassVar[bool] = (
        False  # it does not change the module itself, which then need not be copied for it
    )
    why: str | None = Field(
        default=None, description="a remark for people; it does not change what the step does"
    )

    @property
    def options(self) -> dict[str, Any]:
        """What was chosen, without defaults and without the remark."""
        return self.model_dump(exclude_defaults=True, exclude={"why"}, mode="json")

    @property
    def label(self) -> str:
        """The step as a chip shows it."""
        return self.kind

    @property
    def allowed_error(self) -> float | None:
        """What the step may change of the output; None where it is not meant to be exact."""
        return self.tolerance

    def joined(self, newer: Self) -> Self | None:
        """This step and a newer one of its kind as one; None where each has to be done by
        itself.
        """
        return None

    def apply(self, draft: Draft) -> None:
        """Change the draft, which is this step's own; an error drops it whole."""
        raise TypeError(
            f"step '{self.kind}' does not say how it is applied; define apply(self, draft)"
        )

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Give the draft the structure that `apply` once gave it, from what it remembered; the
        weights are loaded afterwards.

        It neither measures, trains, nor reads data or the values of weights, which are not yet
        those that were saved. A step that only changes values does nothing here; one that decides
        by its input puts its decisions, as plain data, into `draft.remembered` when it is
        applied. A step that does not say is applied.
        """
        self.apply(draft)


def matching(names: Iterable[str], pattern: str, *, what: str) -> list[str]:
    """The layers whose dotted path fits a pattern such as 'layer4.*'; an error that names the
    nearest where none does.
    """
    names = list(names)
    if found := [name for name in names if fnmatchcase(name, pattern)]:
        return found
    near = get_close_matches(
        pattern.replace("*", ""), [name for name in names if name], n=3, cutoff=0.4
    )
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    raise RecipeError(f"{what}: pattern '{pattern}' matches no layer{hint}.")


def parts(names: Iterable[str], picked: Iterable[str]) -> list[str]:
    """Those of the layers that were picked, or are a part of one that was."""
    whole = tuple(picked)
    return [
        name
        for name in names
        if name in whole or name.startswith(tuple(f"{one}." for one in whole))
    ]
