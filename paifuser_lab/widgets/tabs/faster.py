"""The sheet that makes the model faster: a goal and limits, and the measured candidates, ranked."""

from __future__ import annotations

from typing import Any

from ...planner import SearchOptions, SearchResult
from ...planner.result import recipe_of
from ...records import Candidate
from ...session.state import State
from ..section import Bench, Context, Request, Section


def search(bench: Bench, goal: Any, metric_drop: Any, may_train: Any, seconds: Any) -> None:
    """Start a search on the session's worker; options that cannot be used raise at once."""
    SearchOptions(goal, metric_drop, may_train, seconds).check(bench.session.work)
    bench.session.query(
        "faster",
        float(seconds),
        goal=goal,
        metric_drop=float(metric_drop),
        may_train=may_train,
    )


def packed_candidates(candidates: SearchResult) -> dict[str, Any]:
    """The options of the search and a row per candidate, with what its change is called."""
    fields = {"rows", "quality", "workload", "machine"}
    return {
        **candidates.model_dump(mode="json", exclude=fields),
        "title": candidates.title,
        "rows": [_packed_row(row) for row in candidates.rows],
    }


def _packed_row(row: Candidate) -> dict[str, Any]:
    """A row; its steps stay in Python, which applies them by the label."""
    low, high = row.interval or (None, None)
    dumped = row.model_dump(mode="json", exclude={"steps", "interval"})
    return dumped | {"low": low, "high": high}


def _search(bench: Bench, request: Request) -> None:
    search(
        bench,
        request["goal"],
        request["metric_drop"],
        request["may_train"],
        request["seconds"],
    )


def _apply(bench: Bench, request: Request) -> None:
    candidates = bench.session.state.record("candidates")
    bench.recipe = recipe_of(candidates, str(request["label"]), bench.session.work.loaded_as)


def _state(state: State, context: Context) -> dict[str, Any]:
    """Whether there are data to train with, and what is measured on the test data, if anything."""
    work = context.work
    return {
        "can_train": work.train is not None,
        "has_metric": work.metric is not None and work.test is not None,
        "metric_name": work.metric_name,
    }


SECTION = Section(
    "faster",
    record=SearchResult,
    record_name="candidates",
    pack=packed_candidates,
    title="Make it faster",
    tab="layers",
    place="sheet",
    is_always_shown=True,
    state=_state,
    requests={"faster": _search, "apply_candidate": _apply},
)
