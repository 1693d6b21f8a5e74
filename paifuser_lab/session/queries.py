"""The queries that a session's worker runs, by name: on the model without the recipe, that of
memory on the model with it.

A query yields its records as they are computed, by the name under which the state has them; what
was yielded is kept, however the query ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .. import fusion as fusing
from .. import saliency
from ..attention import attention_cost
from ..errors import MeasureError, PaifuserError, StoppedError
from ..machine import threads
from ..measure import faster_threads
from ..planner import achieved, faster, plan_precision
from ..planner.precision.planning import FORMATS, GUIDE
from ..profiler import memory_timeline
from ..pruning.groups import couple, cut_cost
from ..pruning.targets import stairs
from ..variant import apply
from ..workload import Workload, running

SENSITIVITY_SHARE = 0.6  # of the seconds for a plan
PLANNING_STOPPED = (
    "planning was stopped while the sensitivity of the layers was estimated; the estimates are "
    "kept, and the next plan continues from them."
)
STAIRCASE_S = 4.0  # to time each layer at each width, where that was not measured before
Records = dict[str, Any]  # by the name under which the state has them


@dataclass(frozen=True)
class QueryContext:
    """What a query may use: the workload, its seconds, and the records known so far."""

    work: Workload
    seconds: float
    should_stop: Callable[[], bool]
    known: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def _sensitivity(context: QueryContext) -> Iterator[Records]:
    sensitivity = saliency.sensitivity(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    if sensitivity is not None and sensitivity.rows:
        yield {"sensitivity": sensitivity}


def _importance(context: QueryContext) -> Iterator[Records]:
    importance = saliency.importance(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    if importance is not None and importance.rows:
        yield {"importance": importance}
    yield from _coupling(context)


def _coupling(context: QueryContext) -> Iterator[Records]:
    """Coupled channels and the cost of the model without some of them; computed once, since the
    unchanged model stays the same.
    """
    if context.known["coupling"] is not None and context.known["cut_cost"] is not None:
        return
    structure = couple(context.work.model, context.work.inputs)
    yield {"coupling": structure.record(context.work.name)}
    if context.known["baseline"] is not None:
        cost = cut_cost(context.work.model, structure, context.known["baseline"])
        yield {"cut_cost": cost}
        with running(context.work.model):  # no other model runs meanwhile
            cost = cost.with_stairs(stairs(structure, seconds=STAIRCASE_S))
        yield {"cut_cost": cost}


def _allocation(context: QueryContext) -> Iterator[Records]:
    """A format for each layer within the limits in `options`; sensitivities estimated for an
    earlier plan are reused.
    """
    sensitivity = saliency.sensitivity(
        context.work,
        formats=[name for name in FORMATS if name != "fp32"],
        methods=(GUIDE,),
        seconds=SENSITIVITY_SHARE * context.seconds,
        resume=context.known["judged"],
        should_stop=context.should_stop,
    )
    yield {"judged": sensitivity}
    if sensitivity.is_interrupted:
        raise MeasureError(PLANNING_STOPPED)
    remaining = (1 - SENSITIVITY_SHARE) * context.seconds
    yield {
        "allocation": plan_precision(
            context.work,
            sensitivity=sensitivity,
            seconds=remaining,
            should_stop=context.should_stop,
            **context.options,
        )
    }


def _achieved(context: QueryContext) -> Iterator[Records]:
    """Measure one point of the plan; uniform points are numbered after those of the frontier."""
    plan, index = context.known["allocation"], context.options["place"]
    if plan is None or index >= len(plan.everything) or plan.everything[index].achieved is not None:
        return
    count = len(plan.points)
    selection = (
        {"points": [index], "uniform": False}
        if index < count
        else {"points": [], "uniform": [index - count]}
    )
    yield {"allocation": achieved(context.work, plan, seconds=context.seconds, **selection)}


def _fusion(context: QueryContext) -> Iterator[Records]:
    """What can be fused in the unchanged model; nothing if stopped before all sites are timed."""
    with suppress(StoppedError):
        yield {"fusions": fusing.fusions(context.work, should_stop=context.should_stop)}


def _attention(context: QueryContext) -> Iterator[Records]:
    """The cost of sparse attention of the kind in `options`."""
    yield {
        "attention_cost": attention_cost(
            context.work,
            seconds=context.seconds,
            should_stop=context.should_stop,
            **context.options,
        )
    }


def _memory(context: QueryContext) -> Iterator[Records]:
    """The memory of one call with the recipe, beside those with other recipes, by digest."""
    recipe = context.known["recipe"]
    subject = (
        apply(context.work, recipe, should_stop=context.should_stop)
        if len(recipe)
        else context.work
    )
    timeline = memory_timeline(subject)
    yield {"memory": {**context.known.get("memory", {}), recipe.digest: timeline}}


def _faster(context: QueryContext) -> Iterator[Records]:
    """Candidates for the goal in `options`, ranked, as they are measured."""
    for candidates in faster(
        context.work,
        seconds=context.seconds,
        profile=context.known["baseline"],
        should_stop=context.should_stop,
        **context.options,
    ):
        yield {"candidates": candidates}


def _save(context: QueryContext) -> Iterator[Records]:
    """Save the model with the recipe in `options` as a folder, with the recipe's comparison."""
    recipe, folder = context.options["recipe"], context.options["folder"]
    with threads(faster_threads(context.work)):  # as it was applied before, so that it is cached
        variant = apply(context.work, recipe, should_stop=context.should_stop)
    compared = context.known["comparison"] if recipe == context.known["recipe"] else None
    variant.save(folder, compared)
    given = "" if variant.has_named_original else ", work=original"
    yield {"taken_result": f'saved: lab.load("{folder}"{given}) opens it'}


@dataclass(frozen=True)
class Query:
    """A computation about the model that a session can run."""

    name: str
    status: str
    """The state's status while it runs."""
    subject: str
    """What the status line says is computed."""
    seconds: float
    """Its default duration."""
    find: Callable[[QueryContext], Iterator[Records]]


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
MEMORY = Query("memory", "recalling", "the memory of one call", 2.0, _memory)
FASTER = Query("faster", "searching", "what makes it faster, in seconds", 60.0, _faster)
SAVE_FOLDER = Query("save_folder", "saving", "the model as a folder", 2.0, _save)

_ALL = (
    SENSITIVITY,
    IMPORTANCE,
    COUPLING,
    ALLOCATION,
    ACHIEVED,
    FUSION,
    ATTENTION,
    FASTER,
    MEMORY,
    SAVE_FOLDER,
)
QUERIES = {query.name: query for query in _ALL}


def query_named(name: str) -> Query:
    """The query with this name."""
    if name not in QUERIES:
        raise PaifuserError(f"A session has no query '{name}'; it has {', '.join(QUERIES)}.")
    return QUERIES[name]


def subject_of(status: str) -> str:
    """The subject of the query with this status; '' if no query has it."""
    return next((query.subject for query in QUERIES.values() if query.status == status), "")
