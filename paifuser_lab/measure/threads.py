"""The number of threads that a workload is measured with: one choice for all its measurements."""

from __future__ import annotations

from ..machine import thread_choices
from ..records.workload_name import workload_key
from ..workload import Workload, running
from .timing import Candidate, rounds_in_turn
from .watch import MachineWatch

ROUNDS, SECONDS = 9, 1.5  # to choose: at most nine rounds, five within the seconds
SLOW_MS = 500.0  # a slower model is called only as often as necessary
SLOW_ROUNDS = 2

_chosen: dict[tuple[str, str], int] = {}  # by the workload's key and its device


def faster_threads(work: Workload) -> int:
    """The faster of one thread and all physical cores for this model.

    Chosen once for a workload and its copies, so that every measurement of it has the same
    baseline; a choice made on a busy machine holds until it can be made on a quiet one.
    """
    choices = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    if len(choices) == 1:
        return choices[0]
    key = (workload_key(work.name), str(work.device))
    if key in _chosen:
        return _chosen[key]
    work.output()  # a model that fails is named with its layer
    watch = MachineWatch()
    count = _fastest(work, choices)
    if watch.quality(with_processes=False).is_quiet:
        _chosen[key] = count
    return count


def choose_threads(work: Workload, count: int) -> None:
    """Use this number for the workload and its copies from now on."""
    _chosen[workload_key(work.name), str(work.device)] = count


def _fastest(work: Workload, choices: tuple[int, ...]) -> int:
    inputs = work.inputs.clone()
    candidates = [
        Candidate(str(count), lambda: inputs(work.model), count, work.device) for count in choices
    ]
    with running(work.model):
        for samples in rounds_in_turn(candidates, rounds=ROUNDS, seconds=SECONDS):
            done = len(samples[str(choices[0])].rounds_ms)
            slowest = max(sample.median_ms for sample in samples.values())
            if done >= SLOW_ROUNDS and slowest > SLOW_MS:
                break
    return min(choices, key=lambda count: samples[str(count)].median_ms)
