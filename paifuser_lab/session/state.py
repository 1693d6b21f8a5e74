"""What a session has to show at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..recipe import Recipe
from ..records import (
    Allocation,
    AttentionCost,
    Comparison,
    Coupling,
    CutCost,
    FusionMap,
    Importance,
    Profile,
    Sensitivity,
)
from ..variant import Variant

Status = Literal[
    "idle",
    "applying",
    "measuring",
    "profiling",
    "sensing",
    "weighing",
    "coupling",
    "planning",
    "proving",
    "fusing",
    "attending",
]


@dataclass(frozen=True)
class State:
    """What there is to show at one moment; a new one for each change."""

    recipe: Recipe
    variant: Variant | None = None
    comparison: Comparison | None = None
    baseline: Profile | None = None
    profile: Profile | None = None
    sensitivity: Sensitivity | None = None
    importance: Importance | None = None
    coupling: Coupling | None = None  # of the model as it is, as is the cost
    cut_cost: CutCost | None = None
    allocation: Allocation | None = None
    fusions: FusionMap | None = None  # of the model as it is, as is the cost of attention
    attention_cost: AttentionCost | None = None
    judged: Sensitivity | None = None  # that a plan of formats was guided by
    status: Status = "idle"
    done: int = 0
    total: int = 0
    error: str | None = None
    can_undo: bool = False
    can_redo: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether the worker is at it."""
        return self.status != "idle"
