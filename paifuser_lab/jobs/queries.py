"""The queries that a session's worker runs, by name: on the model without the recipe, those of
memory and exports on the model with it.

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
from ..converter import target_of
from ..deployment import DeployOptions, deployments
from ..errors import MeasureError, PaifuserError, StoppedError, stop_if_asked
from ..planner import achieved, plan_precision, plan_shares, searches
from ..planner.precision.planning import FORMATS, GUIDE
from ..profiler import memory_timeline
from ..pruning.groups import couple, cut_cost
from ..pruning.targets import stairs
from ..variant import Variant, apply_as_timed
from ..variant.comparison import compare_settings
from ..variant.live_generation import generate_in_turns
from ..variant.recipe import Recipe
from ..workload import Workload, running

SENSITIVITY_SHARE = 0.6  # of the seconds for a plan
PLANNING_STOPPED = (
    "planning was stopped while the sensitivity of the layers was estimated; the estimates are "
    "kept, and the next plan continues from them."
)
STAIRCASE_S = 4.0  # to time each layer at each width, where that was not measured before
SECONDS_A_TARGET = 1.0  # for timing an exported file beside the live model
Records = dict[str, Any]  # by the name under which the state has them


@dataclass(frozen=True)
class QueryContext:
    """What a query may use: the workload, its seconds, and the records known so far."""

    work: Workload
    seconds: float
    should_stop: Callable[[], bool]
    known: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe."""
        recipe: Recipe = self.known["recipe"]
        return recipe

    def subject(self, *, without: tuple[str, ...] = ()) -> Workload | Variant:
        """The model with the recipe's steps, except those of some kinds."""
        recipe = without_kinds(self.recipe, *without)
        if not len(recipe):
            return self.work
        return apply_as_timed(self.work, recipe, should_stop=self.should_stop)

    def beside_known(self, name: str, key: object, record: Any) -> Records:
        """A record by its key, beside those known for other recipes."""
        return {name: {**(self.known.get(name) or {}), key: record}}


Find = Callable[[QueryContext], Iterator[Records]]


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
    find: Find


QUERIES: dict[str, Query] = {}


def query(name: str, status: str, subject: str, seconds: float) -> Callable[[Find], Find]:
    """Register a function as a query."""

    def register(find: Find) -> Find:
        QUERIES[name] = Query(name, status, subject, seconds, find)
        return find

    return register


def query_named(name: str) -> Query:
    """The query with this name."""
    if name not in QUERIES:
        raise PaifuserError(f"A session has no query '{name}'; it has {', '.join(QUERIES)}.")
    return QUERIES[name]


def subject_of(status: str) -> str:
    """The subject of the query with this status; '' if no query has it."""
    return next((query.subject for query in QUERIES.values() if query.status == status), "")


def without_kinds(recipe: Recipe, *kinds: str) -> Recipe:
    """The recipe without its steps of some kinds."""
    return recipe.of([step for step in recipe if step.kind not in kinds])


def settings_key(recipe: Recipe) -> str:
    """What the timed options of ONNX Runtime belong to: the recipe without its engine."""
    return without_kinds(recipe, "backend").digest


@query("sensitivity", "sensing", "how much each layer matters, in seconds", 20.0)
def _sensitivity(context: QueryContext) -> Iterator[Records]:
    sensitivity = saliency.sensitivity(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    yield {"sensitivity": sensitivity}


@query("importance", "weighing", "how much each channel matters, in seconds", 20.0)
def _importance(context: QueryContext) -> Iterator[Records]:
    importance = saliency.importance(
        context.work, seconds=context.seconds, should_stop=context.should_stop
    )
    yield {"importance": importance}
    yield from _coupling(context)


@query("coupling", "coupling", "which channels go together", 5.0)
def _coupling(context: QueryContext) -> Iterator[Records]:
    """Coupled channels, and the cost of the model without some of them; computed once."""
    if context.known["coupling"] is not None and context.known["cut_cost"] is not None:
        return
    stop_if_asked(context.should_stop)
    structure = couple(context.work.model, context.work.inputs)
    yield {"coupling": structure.record(context.work.name)}
    if context.known["baseline"] is not None:
        cost = cut_cost(context.work.model, structure, context.known["baseline"])
        yield {"cut_cost": cost}
        with running(context.work.model):  # no other model runs meanwhile
            measured = stairs(structure, seconds=STAIRCASE_S, should_stop=context.should_stop)
        cost = cost.with_stairs(measured)
        yield {"cut_cost": cost}


@query("allocation", "planning", "a format for each layer, in seconds", 60.0)
def _allocation(context: QueryContext) -> Iterator[Records]:
    """A format for each layer within the budget in `options`, a loss or a share of what the model
    takes in fp32; earlier sensitivities are reused.
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
    options = {
        "sensitivity": sensitivity,
        "seconds": (1 - SENSITIVITY_SHARE) * context.seconds,
        "should_stop": context.should_stop,
        **context.options,
    }
    if "shares" in options:
        (allocation,) = plan_shares(context.work, **options)
    else:
        allocation = plan_precision(context.work, **options)
    yield {"allocation": allocation}


@query("achieved", "proving", "what the chosen formats really do, in seconds", 4.0)
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
    stop = context.should_stop
    yield {
        "allocation": achieved(
            context.work, plan, seconds=context.seconds, should_stop=stop, **selection
        )
    }


@query("fusion", "fusing", "what can run as one, in seconds", 10.0)
def _fusion(context: QueryContext) -> Iterator[Records]:
    """What can be fused in the unchanged model; nothing if stopped before all sites are timed."""
    with suppress(StoppedError):
        yield {"fusions": fusing.fusions(context.work, should_stop=context.should_stop)}


@query("attention", "attending", "what attention to a part of the keys costs, in seconds", 20.0)
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


@query("memory", "recalling", "the memory of one call", 2.0)
def _memory(context: QueryContext) -> Iterator[Records]:
    """The memory of one call with the recipe, beside those with other recipes, by digest."""
    timeline = memory_timeline(context.subject())
    yield context.beside_known("memory", context.recipe.digest, timeline)


@query("generation", "generating", "text, in seconds", 15.0)
def _generation(context: QueryContext) -> Iterator[Records]:
    """The text of the original and of the model with the recipe, as it grows, by digest."""
    subject = context.subject(without=("backend",))  # it would have no cache
    variants = [subject] if isinstance(subject, Variant) else []
    for generated in generate_in_turns(
        context.work,
        *variants,
        seconds=context.seconds,
        should_stop=context.should_stop,
        **context.options,
    ):
        yield context.beside_known("generation", context.recipe.digest, generated)


@query("faster", "searching", "what makes it faster, in seconds", 60.0)
def _faster(context: QueryContext) -> Iterator[Records]:
    """Candidates for the goal in `options`, ranked, as they are measured."""
    for candidates in searches(
        context.work,
        seconds=context.seconds,
        profile=context.known["baseline"],
        should_stop=context.should_stop,
        **context.options,
    ):
        yield {"candidates": candidates}


@query("save_folder", "saving", "the model as a folder", 2.0)
def _save(context: QueryContext) -> Iterator[Records]:
    """Save the model with the recipe in `options` as a folder, with the recipe's comparison."""
    recipe, folder = context.options["recipe"], context.options["folder"]
    # as it was applied before, so that it is cached
    variant = apply_as_timed(context.work, recipe, should_stop=context.should_stop)
    compared = context.known["comparison"] if recipe == context.recipe else None
    variant.save(folder, compared)
    given = "" if variant.has_named_original else ", work=original"
    text = f'saved: lab.load("{folder}"{given}) opens it'
    yield {"taken_result": (recipe.digest, text)}


@query("export", "exporting", "files for other runtimes", 10.0)
def _export(context: QueryContext) -> Iterator[Records]:
    """The deployment by the recipe's digest; each target shows as soon as it is done."""
    options = dict(context.options)
    folder, targets = options.pop("folder"), options.pop("targets")
    for name in targets:
        target_of(name)
    chosen = DeployOptions(
        **options, seconds=SECONDS_A_TARGET, comparison=context.known["comparison"]
    )
    for deployment in deployments(
        context.subject(), folder, targets, chosen, should_stop=context.should_stop
    ):
        yield context.beside_known("export", context.recipe.digest, deployment)


@query("engine_settings", "tuning", "the session options of ONNX Runtime, in seconds", 20.0)
def _engine_settings(context: QueryContext) -> Iterator[Records]:
    """ONNX Runtime with each of its session options in turn, by the digest of the steps before."""
    compared = compare_settings(
        context.work, context.recipe, seconds=context.seconds, should_stop=context.should_stop
    )
    yield context.beside_known("engine_settings", settings_key(context.recipe), compared)
