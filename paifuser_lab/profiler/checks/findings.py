"""The subject of a checklist, all measurements of it, and the lines that its checks become."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...errors import WorkloadError, first_line, keep_when_stopped
from ...machine import thread_choices, threads
from ...measure import Candidate, Samples, rounds_in_turn
from ...model.copying import copied
from ...model.tensors import is_channels_last
from ...progress import progress
from ...records import Check, counted
from ...workload import Derived, Workload, running, workload_of
from .watch import LoopRun, training_layers, watch

CALLS = 3
ROUNDS = 30
AS_IT_IS, CHANNELS_LAST = "as it is", "channels last"


@dataclass(frozen=True)
class Subject:
    """A loop to watch, and the workload that it calls if known."""

    name: str
    loop: Callable[[], Any]
    work: Workload | None = None
    origin: Workload | None = None  # the workload that a variant was made from
    own_threads: int | None = None
    baseline_metric: float | None = None


def subject_of(
    subject: Workload | Derived | Callable[[], Any], baseline_metric: float | None
) -> Subject:
    """The subject of a workload or a loop; raises for anything else."""
    if baseline_metric is not None and not math.isfinite(baseline_metric):
        raise WorkloadError(
            f"A baseline metric of {baseline_metric} compares with nothing; give a finite number."
        )
    if isinstance(subject, nn.Module) or not callable(subject):
        return _of_workload(subject, baseline_metric)  # type: ignore[arg-type]
    _check_runs_when_called(subject)
    return Subject(_name(subject), subject, baseline_metric=baseline_metric)


def _check_runs_when_called(loop: Callable[[], Any]) -> None:
    if inspect.isgeneratorfunction(loop) or inspect.iscoroutinefunction(loop):
        raise WorkloadError(
            f"{_name(loop)} only begins when it is iterated or awaited; wrap it: "
            "lambda: list(loop()), or asyncio.run."
        )
    try:
        inspect.signature(loop).bind()
    except TypeError as error:
        raise WorkloadError(
            f"The loop is called without arguments, and {_name(loop)} has some ({error}); wrap it: "
            "lambda: train(model, data)."
        ) from error
    except ValueError:
        return  # some callables written in C have no signature; the call itself will raise


def _of_workload(subject: Workload | Derived, baseline_metric: float | None) -> Subject:
    work = workload_of(subject)
    origin = getattr(subject, "work", None)

    def call() -> None:
        for _ in range(CALLS):
            work.inputs.clone()(work.model)

    return Subject(
        work.name,
        call,
        work,
        origin=origin if isinstance(origin, Workload) else None,
        own_threads=subject.own_threads,
        baseline_metric=baseline_metric,
    )


def _name(loop: Callable[[], Any]) -> str:
    name = getattr(loop, "__name__", type(loop).__name__)
    return "your loop" if name == "<lambda>" else name


@dataclass
class Findings:
    """The measurements that the checks read; `reasons` explains missing ones."""

    subject: Subject
    run: LoopRun
    timed: dict[str, Samples] = field(default_factory=dict)  # by layout, or number of threads
    reasons: dict[str, str] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)  # checks that pass without timing
    metrics: tuple[float, float] | None = None  # baseline, now
    is_interrupted: bool = False

    @property
    def is_loop(self) -> bool:
        return self.subject.work is None


def measure_subject(subject: Subject, *, seconds: float) -> Findings:
    """Watch the subject; time and evaluate a workload. An interrupt keeps the results so far."""
    work = subject.work
    if work is None:
        run = watch(subject.loop)
        return Findings(subject, run, is_interrupted=run.is_interrupted)
    training = training_layers(work.model)
    # a failing model raises here with the layer's name; this also warms the caches
    work.output()
    with running(work.model), threads(subject.own_threads):
        run = watch(subject.loop)
    run.training |= training
    findings = Findings(subject, run, is_interrupted=run.is_interrupted)
    if not findings.is_interrupted:
        _time(findings, work, seconds)
    if not findings.is_interrupted:
        _evaluate(findings, work)
    return findings


def _time(findings: Findings, work: Workload, seconds: float) -> None:
    """Time the workload and its alternatives in turn."""
    candidates = _candidates(findings, work)
    with (
        progress("timing", ROUNDS) as shown,
        running(work.model),
        keep_when_stopped() as ending,
    ):
        for findings.timed in rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds):
            shown.advance()
    findings.is_interrupted |= ending.is_stopped


def _candidates(findings: Findings, work: Workload) -> list[Candidate]:
    now = findings.subject.own_threads or torch.get_num_threads()
    candidates = [Candidate(AS_IT_IS, _call(work), now, work.device)]
    if work.device.type != "cpu":
        findings.reasons["threads"] = (
            f"the model runs on {work.device}, where the CPU's threads do not compute"
        )
    elif findings.subject.own_threads is not None:
        findings.reasons["threads"] = (
            f"its backend step fixed the number of threads, {findings.subject.own_threads}"
        )
    else:
        counts = [count for count in thread_choices() if count != now]
        if not counts:
            findings.settled["threads"] = (
                f"{counted(now, 'thread')}, the only sensible number on this machine"
            )
        candidates += [Candidate(str(count), _call(work), count) for count in counts]
    if (call := _channels_last(findings, work)) is not None:
        candidates.append(Candidate(CHANNELS_LAST, call, now, work.device))
    return candidates


def _call(work: Workload) -> Callable[[], Any]:
    return partial(work.inputs.clone(), work.model)


def _channels_last(findings: Findings, work: Workload) -> Callable[[], Any] | None:
    """A call of a channels-last copy, its inputs converted at each call as by the layout step."""
    convolutions = [
        layer for layer in work.model.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    ]
    if not convolutions or all(tensor.ndim != 4 for tensor in work.inputs.tensors):
        findings.reasons["memory layout"] = "no convolution takes images"
        return None
    if any(is_channels_last(layer.weight) for layer in convolutions):
        findings.settled["memory layout"] = "already channels last"
        return None
    try:
        model = copied(work.model).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    except Exception as error:
        findings.reasons["memory layout"] = f"the model cannot be copied ({first_line(error)})"
        return None
    inputs = work.inputs.clone()
    return lambda: inputs.map(_to_channels_last)(model)


def _to_channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _evaluate(findings: Findings, work: Workload) -> None:
    """Evaluate the metric if there is a baseline to compare it with."""
    baseline, origin = findings.subject.baseline_metric, findings.subject.origin
    with keep_when_stopped() as ending:
        if baseline is None and origin is not None:
            baseline = origin.evaluate()
        now = None if baseline is None else work.evaluate()
        if baseline is not None and now is not None:
            findings.metrics = (baseline, now)
    findings.is_interrupted = ending.is_stopped


LOOP_HINT = "hand in your own loop: profiler.checklist(lambda: …)"
WORKLOAD_HINT = "hand in profiler.checklist(lab.Workload(model, inputs))"


class Judged(NamedTuple):
    """A check's value, which passes up to the limit; only a failed one needs the remedy."""

    value: float
    limit: float
    figure: str
    remedy: str | None = None
    step: dict[str, Any] | None = None


def line_of(name: str, outcome: Judged | str) -> Check:
    """The line of a check: what it judged, or why it cannot be measured here."""
    if isinstance(outcome, str):
        return Check(name=name, outcome="not measurable", figure=outcome)
    if outcome.value <= outcome.limit:
        outcome = outcome._replace(remedy=None, step=None)
        return Check(name=name, outcome="passed", **outcome._asdict())
    return Check(name=name, outcome="failed", **outcome._asdict())


def percent(share: float) -> str:
    """0.034 → '3.4%': two figures, and no more than 100."""
    if 0 < share < 0.0001:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def listed(names: list[str]) -> str:
    """The first three names, and the number of the others."""
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")
