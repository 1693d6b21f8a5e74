"""What a session can look at beside its recipe, of the model as it is: each under its name, with
what the state is called meanwhile.

A look hands out what it finds as it finds it, by the name under which the state has it; what was
handed out is kept, however it ends.
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
from .state import Status

JUDGING = 0.6  # of the seconds for a plan, for how much each layer matters
STOPPED = (
    "the planning was stopped while layers were judged; what was judged is kept, and the next plan "
    "goes on from there."
)
STAIRS_S = 4.0  # for how long a layer takes at each width, where that was not measured before
Found = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What is asked for, and what is known when the worker comes to it."""

    work: Workload
    seconds: float
    should_stop: Callable[[], bool]
    known: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def _sensitivity(look: Look) -> Iterator[Found]:
    found = saliency.sensitivity(look.work, seconds=look.seconds, should_stop=look.should_stop)
    if found is not None and found.rows:
        yield {"sensitivity": found}


def _importance(look: Look) -> Iterator[Found]:
    found = saliency.importance(look.work, seconds=look.seconds, should_stop=look.should_stop)
    if found is not None and found.rows:
        yield {"importance": found}
    yield from _coupling(look)


def _coupling(look: Look) -> Iterator[Found]:
    """Which channels go together, and what the model costs without some of them: found once, since
    the model as it is stays.
    """
    if look.known["coupling"] is not None and look.known["cut_cost"] is not None:
        return
    structure = couple(look.work.model, look.work.inputs)
    yield {"coupling": structure.record(look.work.name)}
    if look.known["baseline"] is not None:
        cost = cut_cost(look.work.model, structure, look.known["baseline"])
        yield {"cut_cost": cost}
        with running(look.work.model):  # nobody else's model runs meanwhile
            yield {"cut_cost": cost.with_stairs(stairs(structure, seconds=STAIRS_S))}


def _allocation(look: Look) -> Iterator[Found]:
    """A format for each layer within the limits that `options` are; what an earlier plan judged is
    not judged again.
    """
    judged = saliency.sensitivity(
        look.work,
        formats=[name for name in FORMATS if name != "fp32"],
        methods=(GUIDE,),
        seconds=JUDGING * look.seconds,
        resume=look.known["judged"],
        should_stop=look.should_stop,
    )
    yield {"judged": judged}
    if judged.is_interrupted:
        raise MeasureError(STOPPED)
    rest = (1 - JUDGING) * look.seconds
    yield {
        "allocation": plan_precision(
            look.work,
            sensitivity=judged,
            seconds=rest,
            should_stop=look.should_stop,
            **look.options,
        )
    }


def _achieved(look: Look) -> Iterator[Found]:
    """What one point of the plan really does, the uniform ones counted after those of the
    frontier.
    """
    plan, place = look.known["allocation"], look.options["place"]
    if plan is None or place >= len(plan.everything) or plan.everything[place].achieved is not None:
        return
    count = len(plan.points)
    ours = (
        {"points": [place], "uniform": False}
        if place < count
        else {"points": [], "uniform": [place - count]}
    )
    yield {"allocation": achieved(look.work, plan, seconds=look.seconds, **ours)}


def _fusion(look: Look) -> Iterator[Found]:
    """What could run as one, of the model as it is; one that is stopped before all is timed tells
    nothing.
    """
    with suppress(StoppedError):
        yield {"fusions": fusing.fusions(look.work, should_stop=look.should_stop)}


def _attention(look: Look) -> Iterator[Found]:
    """What attention to a part of the keys costs, in the kind that `options` say."""
    yield {
        "attention_cost": attention_cost(
            look.work, seconds=look.seconds, should_stop=look.should_stop, **look.options
        )
    }


@dataclass(frozen=True)
class Kind:
    """One thing to look at: what the state is called meanwhile, for how many seconds unless
    somebody says, and how it is found.
    """

    status: Status
    seconds: float
    find: Callable[[Look], Iterator[Found]]


KINDS = {
    "sensitivity": Kind("sensing", 20.0, _sensitivity),
    "importance": Kind("weighing", 20.0, _importance),
    "coupling": Kind("coupling", 5.0, _coupling),
    "allocation": Kind("planning", 60.0, _allocation),
    "achieved": Kind("proving", 4.0, _achieved),
    "fusion": Kind("fusing", 10.0, _fusion),
    "attention": Kind("attending", 20.0, _attention),
}
FINDS = (
    "sensitivity",
    "importance",
    "coupling",
    "cut_cost",
    "allocation",
    "fusions",
    "attention_cost",
    "judged",
)  # as the state calls them
