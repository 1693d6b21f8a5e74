"""The number of threads that a workload is measured with: one choice for all its measurements."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import thread_choices
from ..measure import Candidate, MachineWatch, rounds_in_turn
from ..records.quality import MAX_OTHERS
from ..records.record import workload_key
from ..workload import Workload, running

ROUNDS, SECONDS = 9, 1.5  # to choose: at most nine rounds, five within the seconds
SLOW_MS = 500.0  # a slower model is timed in two rounds
SLOW_ROUNDS = 2


@dataclass(frozen=True)
class _Choice:
    """A number of threads; made on a busy machine, it is provisional: `since` watches the load."""

    count: int
    since: MachineWatch | None = None

    @property
    def holds(self) -> bool:
        """Whether it is final, or the machine has not been quiet since it was made."""
        if self.since is None:
            return True
        share = self.since.others_share
        return share is None or share > MAX_OTHERS


_chosen: dict[tuple[str, str], _Choice] = {}  # by the workload's key and its device


def faster_threads(work: Workload) -> int:
    """The faster of one thread and all physical cores for this model.

    Chosen once for a workload, its copies and its variants, so that all their measurements are
    alike; a choice made on a busy machine holds until one can be made on a quiet machine.
    """
    choices = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    if len(choices) == 1:
        return choices[0]
    key = (workload_key(work.name), str(work.device))
    known = _chosen.get(key)
    if known is not None and known.holds:
        return known.count
    work.output()  # a model that fails is named with its layer
    watch = MachineWatch()
    count = _fastest(work, choices)
    if watch.quality(with_processes=False).is_quiet:
        _chosen[key] = _Choice(count)
    else:
        _chosen[key] = _Choice(known.count if known else count, since=MachineWatch())
    return _chosen[key].count


def choose_threads(work: Workload, count: int) -> None:
    """Use this number for the workload and its copies from now on."""
    _chosen[workload_key(work.name), str(work.device)] = _Choice(count)


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
