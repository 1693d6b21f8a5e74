"""Profile a model by layer: run plain and watched in turn, with operators' costs, as rows.

Four passes, each for what it measures best: watched runs for time, a dispatch mode for operators
and their costs, torch's profiler for memory and kernels, and the layer alone for the effect of a
step. The model is left unchanged, also after an error.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_count, check_seconds, check_threads
from ..engines.threads import faster_threads
from ..errors import MeasureError, first_line, keep_when_stopped
from ..machine import hardware
from ..machine import threads as with_threads
from ..measure import MachineWatch, spread, timed_ms, wait_until_quiet
from ..model.tensors import tensors_in
from ..progress import Progress, progress
from ..records import Profile
from ..workload import Derived, Workload, running, running_in_turns, workload_of
from .alternatives import try_alternatives
from .call_timeline import call_timeline
from .clock import watch_run
from .observation import Observation
from .operators import watch_operators
from .recording import backward_by_layer, bytes_held, kernels_by_layer, record_run
from .rows import finished

RUNS = 20
SECONDS = 10.0
MIN_RUNS = 5
OPERATOR_RUNS = 5
BACKWARD_RUNS = 5
SLOW_MS = 500.0  # a slower model is called only as often as necessary


def profile(
    subject: Workload | Derived,
    *,
    runs: int = RUNS,
    seconds: float = SECONDS,
    backward: bool = False,
    threads: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Profile:
    """Measure where a model or variant spends its time, memory and bytes, layer by layer.

    Ends after `runs`, or after `seconds` once five are done. `backward` also times the gradients of
    a training step. `threads` defaults to the faster of one and all.
    """
    return profile_in_turn(
        [subject],
        runs=runs,
        seconds=seconds,
        backward=backward,
        threads=threads,
        should_stop=should_stop,
    )[0]


def profile_in_turn(
    subjects: Sequence[Workload | Derived],
    *,
    runs: int = RUNS,
    seconds: float = SECONDS,
    backward: bool = False,
    threads: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Profile]:
    """Profile several models with their runs in turn, so that they can be compared."""
    check_count("runs", runs)
    check_seconds(seconds)
    check_threads(threads)
    if not isinstance(subjects, Sequence):
        raise MeasureError(
            f"profile_in_turn takes a list of workloads, not a {type(subjects).__name__}; for one "
            "workload use profile."
        )
    if backward:
        for subject in subjects:
            _check_gradients(workload_of(subject))
    observations = [_first_run(subject, threads) for subject in subjects]
    if backward:
        _check_engines(observations)
    devices = {one.work.device for one in observations if one.work.device.type == "cuda"}
    with (
        progress("profiling", runs + 3 * len(observations)) as shown,
        torch.random.fork_rng(devices=devices),
    ):
        with keep_when_stopped(
            lambda: all(one.watched_ms and one.plain_ms for one in observations)
        ) as ending:
            watch = MachineWatch()
            _time_in_turn(observations, (runs, seconds), watch, shown, should_stop)
            for observation in observations:
                observation.quality = watch.quality(spread=spread(observation.plain_ms))
            for observation in observations:
                _measure_details(observation, shown, backward=backward)
        if ending.is_stopped:
            for observation in observations:
                observation.is_interrupted = True
    return [finished(observation) for observation in observations]


def _first_run(subject: Workload | Derived, threads: int | None) -> Observation:
    """Check that it runs, choose the number of threads, and record its layers' operators."""
    work = workload_of(subject)
    work.output()  # a failing model raises here, with its layer's name
    observation = Observation(
        work, threads or subject.own_threads or faster_threads(work), hardware()
    )
    with running(work.model), with_threads(observation.threads):
        if observation.engine is not None:
            observation.recorder = observation.engine.recorder(work.inputs.clone())
        if observation.recorder is not None:
            observation.operators = watch_operators(
                observation.layered, observation.fresh_layered_call, runs=0
            )
            return observation
        once_ms = timed_ms(observation.fresh_call(), work.device)
        observation.operators = watch_operators(
            work.model, observation.fresh_call, runs=1 if once_ms > SLOW_MS else OPERATOR_RUNS
        )
    return observation


def _time_in_turn(
    observations: list[Observation],
    limits: tuple[int, float],
    watch: MachineWatch,
    shown: Progress,
    should_stop: Callable[[], bool] | None,
) -> None:
    """Time each model plain and watched, round by round in shuffled order, as others do theirs."""
    runs, seconds = limits
    shuffle = random.Random(0).shuffle
    turns = [
        (observation, is_watched) for observation in observations for is_watched in (False, True)
    ]
    has_engine = any(observation.engine is not None for observation in observations)
    spent_s = 0.0
    with ExitStack() as stack:
        for observation in observations:
            stack.enter_context(running_in_turns(observation.work.model))
        for done in range(runs):
            is_late = done >= MIN_RUNS and spent_s > seconds
            if is_late or (should_stop is not None and done and should_stop()):
                return
            shuffle(turns)
            with watch.turn():
                began = time.perf_counter()
                for observation, is_watched in turns:
                    if has_engine:
                        _warm_up(observation, is_watched=is_watched)
                    _take_turn(observation, is_watched=is_watched)
                spent_s += time.perf_counter() - began
            shown.advance(doing=", ".join(observation.work.name for observation in observations))


def _warm_up(observation: Observation, *, is_watched: bool) -> None:
    """Wait until the threads of engines sleep, which spin after a call, and wake this model's by a
    call that is not counted.
    """
    wait_until_quiet()
    call, recorder = observation.fresh_call(), observation.recorder
    if is_watched and recorder is not None:
        call = partial(recorder.run, observation.work.inputs.clone().tensors)
    with with_threads(observation.threads):
        call()


def _take_turn(observation: Observation, *, is_watched: bool) -> None:
    model, device = observation.work.model, observation.work.device
    with with_threads(observation.threads):
        if not is_watched:
            observation.plain_ms.append(timed_ms(observation.fresh_call(), device))
            return
        if observation.recorder is not None:
            recorder, tensors = observation.recorder, observation.work.inputs.clone().tensors
            observation.watched_ms.append(timed_ms(lambda: recorder.run(tensors), device))
            return
        call = observation.fresh_call()
        taken = timed_ms(lambda: observation.runs.append(watch_run(model, call, device)), device)
        observation.watched_ms.append(taken)


def _measure_details(observation: Observation, shown: Progress, *, backward: bool) -> None:
    """Measure memory, kernels, alternatives and, on request, gradients."""
    work = observation.work
    if observation.recorder is not None:  # the engine has told what it can
        shown.advance(3)
        return
    with running(work.model), with_threads(observation.threads):
        events = record_run(work.model, observation.fresh_call(), work.device, memory=True)
        observation.held, observation.kernels = bytes_held(events), kernels_by_layer(events)
        observation.timeline = call_timeline(observation, events)
        shown.advance(doing="memory")
        observation.alternatives = try_alternatives(
            work.model,
            observation.operators,
            observation.runs[-1].own_ms,
            observation.machine,
            work.device,
        )
        shown.advance(doing="alternatives")
        if backward:
            _measure_backward(observation)
        shown.advance(doing="gradients")


def _measure_backward(observation: Observation) -> None:
    """Record a few training steps, after one in which compiled parts are compiled for them."""
    model = observation.work.model
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        _training_step(observation)()
        for _ in range(BACKWARD_RUNS):
            events = record_run(model, _training_step(observation), observation.work.device)
            observation.backward.append(backward_by_layer(events))
    except MeasureError:
        raise
    except Exception as error:
        raise MeasureError(
            f"{observation.work.name} runs, but not a training step of it "
            f"({first_line(error).rstrip('.')}); profile it without backward=True."
        ) from error
    finally:
        for module, flag in modes:
            module.training = flag


def _training_step(observation: Observation) -> Callable[[], None]:
    """A step that computes and drops the gradients of the mean square of the output."""
    weights = [weight for weight in observation.work.model.parameters() if weight.requires_grad]
    call = observation.fresh_call()

    def step() -> None:
        with torch.enable_grad():
            torch.autograd.grad(_surrogate_loss(call()), weights, allow_unused=True)

    return step


def _check_gradients(work: Workload) -> None:
    if not any(weight.requires_grad for weight in work.model.parameters()):
        raise MeasureError(
            f"{work.name} has no weight that requires a gradient; profile it without backward=True."
        )


def _check_engines(observations: list[Observation]) -> None:
    for observation in observations:
        if observation.recorder is not None:
            raise MeasureError(
                f"{observation.recorder.title} computes no gradients; profile "
                f"{observation.work.name} without backward=True, or the model without its backend."
            )


def _surrogate_loss(output: Any) -> Tensor:
    """A scalar that depends on every output tensor."""
    leaves = [leaf for leaf in tensors_in(output) if leaf.requires_grad]
    if not leaves:
        raise MeasureError(
            "no part of the model's output depends on its weights; profile it without "
            "backward=True."
        )
    return torch.stack([leaf.float().square().mean() for leaf in leaves]).sum()
