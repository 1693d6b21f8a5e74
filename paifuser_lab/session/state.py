"""What a session has to show at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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

RECORDS = (
    "sensitivity",
    "importance",
    "coupling",
    "cut_cost",
    "allocation",
    "fusions",
    "attention_cost",
    "judged",
)  # fields of the state that queries fill


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
    status: str = "idle"  # or applying, measuring, profiling, or a query's
    done: int = 0
    total: int = 0
    error: str | None = None
    can_undo: bool = False
    can_redo: bool = False
    records: Mapping[str, Any] = field(default_factory=dict)
    """What queries found that has no field of its own."""

    @property
    def is_busy(self) -> bool:
        """Whether the worker is at it."""
        return self.status != "idle"

    def with_record(self, name: str, record: Any) -> State:
        """The state with what a query found; None takes it away."""
        if name in RECORDS:
            return replace(self, **{name: record})
        return replace(self, records={**self.records, name: record})

    def record(self, name: str) -> Any:
        """What a query found, by its name; None where it is not known."""
        return getattr(self, name) if name in RECORDS else self.records.get(name)


def known_records(found: Mapping[str, Any]) -> dict[str, Any]:
    """What queries found, as the fields of a state."""
    others = {name: record for name, record in found.items() if name not in RECORDS}
    return {name: found.get(name) for name in RECORDS} | {"records": others}
