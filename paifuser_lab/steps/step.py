"""The base class of steps, and the draft that a step changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from ..engines import Enclosed
from ..errors import RecipeError
from ..memory.pools import MemoryPool
from ..workload import Workload

# the last class of each kind that this process has defined, in a notebook for one
DEFINED: dict[str, type[Step]] = {}


@dataclass
class Draft:
    """The copy that a recipe is being applied to.

    `module` holds the weights and always runs eagerly; `engine`, if a step has set one, runs calls
    instead.
    """

    work: Workload
    module: nn.Module
    engine: Enclosed | None = None
    # the memory pool that is in force while the model runs
    pool: MemoryPool | None = None
    threads: int = field(default_factory=torch.get_num_threads)
    notes: list[str] = field(default_factory=list)
    # what the step needs to be rebuilt without choosing again; plain data
    remembered: dict[str, Any] = field(default_factory=dict)
    # the recipe's earlier steps; set while a step is applied, not while it is rebuilt
    earlier: tuple[Step, ...] = ()
    # slow steps poll it and raise StoppedError
    should_stop: Callable[[], bool] = lambda: False

    @property
    def model(self) -> nn.Module:
        """The module that runs calls."""
        return self.module if self.engine is None else self.engine

    def call_in_pool(self) -> None:
        """Let calls of the model run in the pool, if it has one."""
        if self.pool is not None:
            self.engine = self.engine or Enclosed(self.module)
            self.engine.around = self.pool.during_call


class Step(BaseModel):
    """One change of a model, as plain data.

    A new kind of step is one file with one subclass, and one line in the registry (or an entry
    point of another package).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    kind: ClassVar[str]
    # the relative L2 error that an exact step may make against the draft before it
    tolerance: ClassVar[float | None] = None
    is_last: ClassVar[bool] = False  # no step can follow it
    is_late: ClassVar[bool] = False  # only a last step can follow it
    # the option that a bare value sets, as in `backend: onnxruntime`
    main_option: ClassVar[str] = ""
    leaves_module: ClassVar[bool] = False  # it does not change the module, so that none is copied
    is_single: ClassVar[bool] = False  # a newer step of the kind takes its place
    why: str | None = Field(
        default=None, description="a remark for people; it does not change what the step does"
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in vars(cls):
            DEFINED[cls.kind] = cls

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not defaults, without the remark."""
        return self.model_dump(exclude_defaults=True, exclude={"why"}, mode="json")

    @property
    def label(self) -> str:
        """The text of the step's chip."""
        return self.kind

    @property
    def allowed_error(self) -> float | None:
        """The tolerance of the step; None if it is not meant to be exact."""
        return self.tolerance

    def joined(self, newer: Self) -> Self | None:
        """This step and a newer one of its kind as one; None if each is applied by itself."""
        return newer if self.is_single else None

    def updated(self, newer: Self, **changes: Any) -> Self:
        """This step with what a newer one sets, and these changes."""
        chosen = newer.model_dump(include=newer.model_fields_set - {"why"})
        return self.model_copy(update={**chosen, **changes, "why": None})

    def apply(self, draft: Draft) -> None:
        """Change the draft, which belongs to this step; it is discarded on an error."""
        raise TypeError(f"step '{self.kind}' cannot be applied; define apply(self, draft)")

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Give the draft the structure that `apply` gave it, from `remembered`; the weights are
        loaded afterwards.

        It neither measures, trains, nor reads data or the values of weights, which are not yet the
        saved ones. A step that only changes values does nothing here; one that decides by its input
        stores its decisions, as plain data, in `draft.remembered` when it is applied. By default
        the step is applied.
        """
        self.apply(draft)


def matching(names: Iterable[str], pattern: str, *, what: str) -> list[str]:
    """The layers whose path matches a pattern such as 'layer4.*'; an error suggests near ones."""
    names = list(names)
    if layers := [name for name in names if fnmatchcase(name, pattern)]:
        return layers
    near = get_close_matches(
        pattern.replace("*", ""), [name for name in names if name], n=3, cutoff=0.4
    )
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    raise RecipeError(f"{what}: pattern '{pattern}' matches no layer{hint}.")


def layers_matching(model: nn.Module, patterns: Iterable[str], *, what: str) -> list[str]:
    """The layers of a model that any of the patterns matches."""
    names = [name for name, _ in model.named_modules() if name]
    return [layer for pattern in patterns for layer in matching(names, pattern, what=what)]


def by_pattern(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """The values of both by pattern; one that the newer repeats moves to the end, and wins."""
    return {name: value for name, value in older.items() if name not in newer} | dict(newer)


def parts(names: Iterable[str], picked: Iterable[str]) -> list[str]:
    """The layers that were picked, or are part of a picked one."""
    whole = tuple(picked)
    return [
        name
        for name in names
        if name in whole or name.startswith(tuple(f"{layer}." for layer in whole))
    ]
