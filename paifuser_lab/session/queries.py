"""What a session's worker can find out about the model without the recipe: one query each, by its
name.

A query yields records as it finds them, by the name under which the state has them; what was
yielded is kept, however the query ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .. import fusion as fusing
from .. import saliency
from ..attention import attention_cost
from ..errors import MeasureError, StoppedError
from ..planner import achieved, plan_precision
from ..planner.precision.planning import FORMATS, GUIDE
from ..pruning.groups import couple, cut_cost
from ..pruning.targets import stairs
from ..workload import Workload, running

JUDGING = 0.6  # of the seconds for a plan, for how much each layer matters
STOPPED = (
    "the planning was stopped while layers were judged; what was judged is kept, and the next plan "
    "goes on from there."
)
STAIRS_S = 4.0  # for how long a layer takes at each width, where that was not measured before
Found = dict[str, Any]  # records, by the name under which the state has them


@dataclass(frozen=True)
class QueryContext:
    """What a query may use: the workload, its time, and the records that are known so far."""

    work: Workload
    seconds: float
    should_stop: Callable[[], bool]
    known: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def _sensitivity(context: QueryContext) -> Iterator[Found]:
    found = saliency.sensitivity(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    if found is not None and found.rows:
        yield {"sensitivity": found}


def _importance(context: QueryContext) -> Iterator[Found]:
    found = saliency.importance(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    if found is not None and found.rows:
        yield {"importance": found}
    yield from _coupling(context)


def _coupling(context: QueryContext) -> Iterator[Found]:
    """Which channels go together, and what the model costs without some of them: found once, since
    the model as it is stays.
    """
    if context.known["coupling"] is not None and context.known["cut_cost"] is not None:
        return
    structure = couple(context.work.model, context.work.inputs)
    yield {"coupling": structure.record(context.work.name)}
    if context.known["baseline"] is not None:
        cost = cut_cost(context.work.model, structure, context.known["baseline"])
        yield {"cut_cost": cost}
        with running(context.work.model):  # no other model runs meanwhile
            cost = cost.with_stairs(stairs(structure, seconds=STAIRS_S))
        yield {"cut_cost": cost}


def _allocation(context: QueryContext) -> Iterator[Found]:
    """A format for each layer within the limits that `options` are; what an earlier plan judged is
    not judged again.
    """
    judged = saliency.sensitivity(
        context.work,
        formats=[name for name in FORMATS if name != "fp32"],
        methods=(GUIDE,),
        seconds=JUDGING * context.seconds,
        resume=context.known["judged"],
        should_stop=context.should_stop,
    )
    yield {"judged": judged}
    if judged.is_interrupted:
        raise MeasureError(STOPPED)
    rest = (1 - JUDGING) * context.seconds
    yield {
        "allocation": plan_precision(
            context.work,
            sensitivity=judged,
            seconds=rest,
            should_stop=context.should_stop,
            **context.options,
        )
    }


def _achieved(context: QueryContext) -> Iterator[Found]:
    """What one point of the plan really does, the uniform ones counted after those of the
    frontier.
    """
    plan, place = context.known["allocation"], context.options["place"]
    if plan is None or place >= len(plan.everything) or plan.everything[place].achieved is not None:
        return
    count = len(plan.points)
    ours = (
        {"points": [place], "uniform": False}
        if place < count
        else {"points": [], "uniform": [place - count]}
    )
    yield {"allocation": achieved(context.work, plan, seconds=context.seconds, **ours)}


def _fusion(context: QueryContext) -> Iterator[Found]:
    """What could run as one, of the model as it is; one that is stopped before all is timed tells
    nothing.
    """
    with suppress(StoppedError):
        yield {"fusions": fusing.fusions(context.work, should_stop=context.should_stop)}


def _attention(context: QueryContext) -> Iterator[Found]:
    """What attention to a part of the keys costs, in the kind that `options` say."""
    yield {
        "attention_cost": attention_cost(
            context.work,
            seconds=context.seconds,
            should_stop=context.should_stop,
            **context.options,
        )
    }


@dataclass(frozen=True)
class Query:
    """Something to find out about the model, and how it is found."""

    name: str
    status: str
    """What the state's status is meanwhile."""
    subject: str
    """What the status line says is being found."""
    seconds: float
    """How long it takes where nobody says."""
    find: Callable[[QueryContext], Iterator[Found]]


SENSITIVITY = Query(
    "sensitivity", "sensing", "how much each layer matters, in seconds", 20.0, _sensitivity
)
IMPORTANCE = Query(
    "importance", "weighing", "how much each channel matters, in seconds", 20.0, _importance
)
COUPLING = Query("coupling", "coupling", "which channels go together", 5.0, _coupling)
ALLOCATION = Query(
    "allocation", "planning", "a format for each layer, in seconds", 60.0, _allocation
)
ACHIEVED = Query(
    "achieved", "proving", "what the chosen formats really do, in seconds", 4.0, _achieved
)
FUSION = Query("fusion", "fusing", "what can run as one, in seconds", 10.0, _fusion)
ATTENTION = Query(
    "attention",
    "attending",
    "what attention to a part of the keys costs, in seconds",
    20.0,
    _attention,
)

QUERIES = {
    query.name: query
    for query in (SENSITIVITY, IMPORTANCE, COUPLING, ALLOCATION, ACHIEVED, FUSION, ATTENTION)
}


def subject_of(status: str) -> str:
    """What is being found while the state has this status; '' where no query has it."""
    return next((query.subject for query in QUERIES.values() if query.status == status), "")
