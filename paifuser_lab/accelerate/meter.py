"""What steps of a training loop take: clocks, memory counters, and the block that runs now."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..measure import peak_resident_bytes, restart_peak
from ..measure.pages import return_free_memory
from .race import RUINOUS, Block, Race, Way

COARSE_S = 1e-3
BLOCK_S, MIN_STEPS, MAX_STEPS = 0.05, 3, 10  # of a block


class Moment(NamedTuple):
    """A point in time: on the wall's clock, and in CPU time of this thread."""

    wall_s: float
    cpu_s: float

    def since(self, earlier: Moment) -> Moment:
        return Moment(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


class Meter:
    """The clocks and memory counters of this machine."""

    def now(self, device: torch.device, *, is_measuring: bool = False) -> Moment:
        """This moment; while measuring, after the device has done its work."""
        if is_measuring and device.type == "cuda":
            torch.cuda.synchronize(device)
        return Moment(time.perf_counter(), time.thread_time())

    @property
    def is_coarse(self) -> bool:
        """Whether the clock of CPU time ticks too rarely for a step, as on Windows."""
        return time.get_clock_info("thread_time").resolution > COARSE_S

    def restart_peak(self, device: torch.device) -> bool:
        """Let the peak of held memory begin again; False where there is no such counter."""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return True
        return restart_peak()

    def trim(self, device: torch.device) -> None:
        """Give freed memory back, which would count as held."""
        if device.type == "cpu":
            return_free_memory()

    def peak_bytes(self, device: torch.device) -> int | None:
        """The most that was held since then: by tensors on a GPU, else by the process."""
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device)
        return peak_resident_bytes()


@dataclass
class OpenBlock:
    """The steps of a block so far; the first after a change is not one of them, but its cost."""

    way: Way
    needs_warm_up: bool
    is_wall: bool
    warm_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    has_peak: bool = False
    _optimizer_s: list[float] = field(default_factory=list)
    _began: Moment | None = None  # the step of an optimizer that runs now
    _in_optimizers_s: float = 0.0  # of the step that runs now

    def enter_optimizer(self, now: Moment) -> None:
        self._began = now

    def leave_optimizer(self, now: Moment) -> None:
        if self._began is not None:
            self._in_optimizers_s += self._seconds(now.since(self._began))
            self._began = None

    def add(self, taken: Moment, losses: list[float]) -> None:
        """A step of the loop has ended."""
        seconds = self._seconds(taken)
        in_optimizers, self._in_optimizers_s = self._in_optimizers_s, 0.0
        if self.needs_warm_up:
            self.needs_warm_up, self.warm_s = False, self.warm_s + seconds
            return
        self.seconds.append(seconds)
        self._optimizer_s.append(in_optimizers)
        self.losses += losses

    def is_over(self, race: Race | None) -> bool:
        """Whether it has steps enough for the clock, or begins so slowly that it need not go on:
        one slow step may be a neighbour's doing, two in a row hardly are.
        """
        if not self.seconds:
            return False
        shortest = max(min(self.seconds), 1e-6)
        reference_s = race.reference_s if race is not None else None
        is_hopeless = (
            reference_s is not None
            and shortest > RUINOUS * reference_s
            and self.warm_s > RUINOUS * reference_s
        )
        steps = min(MAX_STEPS, max(MIN_STEPS, math.ceil(BLOCK_S / shortest)))
        return is_hopeless or len(self.seconds) >= steps

    def closed(self, peak_bytes: int | None) -> Block:
        """The block as the judge sees it; a clock too coarse for the optimizers says nothing."""
        in_optimizers = tuple(self._optimizer_s) if all(self._optimizer_s) else ()
        return Block(
            self.way,
            tuple(self.seconds),
            tuple(self.losses),
            self.warm_s,
            peak_bytes,
            in_optimizers,
        )

    def _seconds(self, taken: Moment) -> float:
        return taken.wall_s if self.is_wall else taken.cpu_s
