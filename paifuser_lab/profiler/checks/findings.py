"""What was found out about a subject before it is judged: watched once, timed in turn, its metric
taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import first_line
from ...machine import thread_choices
from ...measure import Candidate, Samples, rounds_in_turn
from ...model.copying import copied
from ...progress import progress
from ...records import counted
from ...stopping import keep_when_stopped
from ...workload import Workload, running
from .model_watch import training_layers
from .subject import Subject
from .watch import Seen, watch

ROUNDS = 30
AS_IT_IS, CHANNELS_LAST = "as it is", "channels last"


@dataclass
class Findings:
    """Everything that the checks read; `reasons` explains what is missing."""

    subject: Subject
    seen: Seen
    timed: dict[str, Samples] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)  # needs no timing to pass
    metrics: tuple[float, float] | None = None  # baseline, now
    is_interrupted: bool = False

    @property
    def is_loop(self) -> bool:
        return self.subject.work is None


def with_threads(count: int) -> str:
    """The name under which a number of threads is timed."""
    return f"{count} threads"


def find_out(subject: Subject, *, seconds: float) -> Findings:
    """Watch the subject, and where it is a workload time it and take its metric; an interrupt keeps
    what there is.
    """
    training = {}
    if subject.work is not None:
        training = {
            name or "itself": type(layer).__name__
            for name, layer in training_layers(subject.work.model)
        }
        # a model that fails does so here, with the layer's name; and the caches are warm
        subject.work.output()
    with subject.ready():
        seen = watch(subject.loop)
    seen.training |= training
    found = Findings(subject, seen, is_interrupted=seen.is_interrupted)
    if subject.work is not None:
        for find in (_time, _evaluate):
            if not found.is_interrupted:
                find(found, subject.work, seconds)
    return found


def _time(found: Findings, work: Workload, seconds: float) -> None:
    """Time the workload as it is against its alternatives, in turn."""
    candidates = _candidates(found, work)
    with ExitStack() as stack, progress("timing", ROUNDS) as shown:
        stack.enter_context(running(work.model))
        with keep_when_stopped() as ending:
            for found.timed in rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds):
                shown.advance()
    found.is_interrupted |= ending.is_stopped


def _candidates(found: Findings, work: Workload) -> list[Candidate]:
    now = torch.get_num_threads()
    candidates = [Candidate(AS_IT_IS, _call(work.model, work), now, work.device)]
    if work.device.type != "cpu":
        found.reasons["threads"] = (
            f"the model runs on {work.device}, where the CPU's threads do not compute"
        )
    elif found.subject.own_threads is not None:
        found.reasons["threads"] = (
            f"its backend step fixed the number of threads, {found.subject.own_threads}"
        )
    else:
        counts = [count for count in thread_choices() if count != now]
        if not counts:
            found.settled["threads"] = (
                f"{counted(now, 'thread')}, the only sensible number on this machine"
            )
        candidates += [
            Candidate(with_threads(count), _call(work.model, work), count) for count in counts
        ]
    if (turned := _channels_last(found, work)) is not None:
        candidates.append(Candidate(CHANNELS_LAST, turned, now, work.device))
    return candidates


def _call(model: nn.Module, work: Workload) -> Callable[[], Any]:
    inputs = work.inputs.clone()
    return lambda: inputs(model)


def _channels_last(found: Findings, work: Workload) -> Callable[[], Any] | None:
    """A call of a copy with its weights channels-last, the inputs turned at each call as the layout
    step does.
    """
    convolutions = [
        layer for layer in work.model.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    ]
    if not convolutions or all(tensor.ndim != 4 for tensor in work.inputs.tensors):
        found.reasons["memory layout"] = "there is no convolution that is given images"
        return None
    if any(_is_turned(layer.weight) for layer in convolutions):
        found.settled["memory layout"] = "already channels last"
        return None
    try:
        turned = copied(work.model).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    except Exception as error:
        found.reasons["memory layout"] = f"the model cannot be copied ({first_line(error)})"
        return None
    inputs = work.inputs.clone()
    return lambda: inputs.map(_turn)(turned)


def _is_turned(weight: Tensor) -> bool:
    """Whether the order in memory is channels-last and nothing else; where the kernel is 1 × 1 the
    two are the same.
    """
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def _turn(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _evaluate(found: Findings, work: Workload, seconds: float) -> None:
    """Take the metric where there is something to compare it with."""
    baseline, origin = found.subject.baseline_metric, found.subject.origin
    now = None
    with keep_when_stopped() as ending:
        if baseline is None and origin is not None:
            baseline = origin.evaluate()
        now = None if baseline is None else work.evaluate()
    if ending.is_stopped:
        found.is_interrupted = True
        return
    if baseline is not None and now is not None:
        found.metrics = (baseline, now)
