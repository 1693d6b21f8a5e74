"""A snapshot of what a session has to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..records import (
    Allocation,
    AttentionCost,
    Comparison,
    Coupling,
    CutCost,
    FusionMap,
    Importance,
    Profile,
    Results,
    Sensitivity,
)
from ..variant import Variant
from ..variant.recipe import Recipe

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
class Refused:
    """A recipe that was withdrawn since it exceeds its limit, or could not be measured."""

    sentence: str
    number: int
    """Its row in the results."""
    can_allow: bool
    """Whether it was measured, so that a wider limit would let it in."""


@dataclass(frozen=True)
class State:
    """A snapshot of what there is to show; each change makes a new one."""

    recipe: Recipe
    variant: Variant | None = None
    comparison: Comparison | None = None
    baseline: Profile | None = None
    profile: Profile | None = None
    sensitivity: Sensitivity | None = None
    importance: Importance | None = None
    coupling: Coupling | None = None  # of the unchanged model, as is `cut_cost`
    cut_cost: CutCost | None = None
    allocation: Allocation | None = None
    fusions: FusionMap | None = None  # of the unchanged model, as is `attention_cost`
    attention_cost: AttentionCost | None = None
    results: Results | None = None  # everything tried so far
    judged: Sensitivity | None = None  # that the allocation was planned with
    status: str = "idle"  # or applying, waiting, measuring, profiling, or a query's
    done: int = 0
    total: int = 0
    error: str | None = None
    refused: Refused | None = None
    """What was withdrawn last, until the next choice."""
    others: tuple[float, ...] = ()
    """The share of the cores that other processes took in each of the last seconds."""
    queued: tuple[str, ...] = ()
    """The queries that wait until the running job is done."""
    can_undo: bool = False
    can_redo: bool = False
    records: Mapping[str, Any] = field(default_factory=dict)
    """Results of queries that have no field of their own."""

    @property
    def is_busy(self) -> bool:
        """Whether the worker is running a job."""
        return self.status != "idle"

    def with_record(self, name: str, record: Any) -> State:
        """The state with a query's record; None removes it."""
        if name in RECORDS:
            return replace(self, **{name: record})
        return replace(self, records={**self.records, name: record})

    def record(self, name: str) -> Any:
        """The record of a query by its name; None if it is not known."""
        return getattr(self, name) if name in RECORDS else self.records.get(name)


def known_records(records: Mapping[str, Any]) -> dict[str, Any]:
    """The records of queries as the fields of a state."""
    others = {name: record for name, record in records.items() if name not in RECORDS}
    return {name: records.get(name) for name in RECORDS} | {"records": others}
