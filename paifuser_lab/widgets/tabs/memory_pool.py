"""The section of the memory pool: switches of the steps pool and reuse, and what they did."""

from __future__ import annotations

from typing import Any

from ...jobs.memory_queries import pool_key
from ...memory.pools import heap_obstacle
from ...records import PoolCalls
from ...session.state import State
from ...variant.recipe import Recipe
from ...views.memory_fit import picture_of_pool
from ...workload import Workload
from ..details import current
from ..recipe_edits import with_options
from ..section import Bench, Context, Request, Section
from ..wire import pictured

KINDS = ("pool", "reuse")
POOL_NOTE = "the memory pool "  # how the note of a comparison begins


def with_switch(recipe: Recipe, kind: str, *, is_on: bool) -> Recipe:
    """The recipe with the step pool or reuse, or without it."""
    if is_on and any(step.kind == kind for step in recipe):
        return recipe
    return with_options(recipe, kind, {} if is_on else None)


def switches(state: State, obstacle: str) -> dict[str, dict[str, Any]]:
    """Of each step whether it is on, why it cannot be, and what it did."""
    kinds = [step.kind for step in state.recipe]
    return {
        kind: {
            "is_on": kind in kinds,
            "obstacle": obstacle if kind == "pool" else "",
            "notes": effects(state, kind) if kind in kinds else [],
        }
        for kind in KINDS
    }


def effects(state: State, kind: str) -> list[str]:
    """What a step of the recipe noted, and for a pool whether it helped when it was measured."""
    variant, compared = state.variant, state.comparison
    notes: list[str] = []
    if variant is not None and variant.recipe == state.recipe:
        for step, report in zip(variant.recipe, variant.reports, strict=True):
            notes += report.notes if step.kind == kind else ()
    now = current(compared) if compared is not None else None
    if kind == "pool" and now is not None:
        notes += [note for note in now.notes if note.startswith(POOL_NOTE)]
    return list(dict.fromkeys(notes))


def pool_obstacle(work: Workload) -> str:
    """Why there is no pool where this model runs; '' if there is one."""
    kind = work.device.type
    if kind == "cuda":
        return ""
    return heap_obstacle() if kind == "cpu" else f"there is no memory pool on {kind}"


def _switch(bench: Bench, request: Request) -> None:
    bench.recipe = with_switch(bench.recipe, request["kind"], is_on=bool(request["is_on"]))


def _state(state: State, context: Context) -> dict[str, Any]:
    return {"memory_steps": switches(state, pool_obstacle(context.work))}


SECTION = Section(
    "memory_pool",
    record=PoolCalls,
    pack=lambda calls: pictured(picture_of_pool(calls)),
    sources=lambda state: ((state.record("memory_pool") or {}).get(pool_key(state.recipe)),),
    title="Memory pool",
    tab="options",
    place="memory",
    is_always_shown=True,
    state=_state,
    requests={
        "memory_pool": lambda bench, request: bench.session.query("memory_pool"),
        "memory_step": _switch,
    },
)
