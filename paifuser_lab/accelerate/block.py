"""The block of steps that runs now: what its steps take, in all and in the optimizers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .meter import Moment
from .race import RUINOUS, Block, Race, Way

BLOCK_S, MIN_STEPS, MAX_STEPS = 0.05, 3, 10  # of a block


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
        """An optimizer begins its step."""
        self._began = now

    def leave_optimizer(self, now: Moment) -> None:
        """It has ended it."""
        if self._began is not None:
            self._in_optimizers_s += self._seconds(now.since(self._began))
            self._began = None

    def add(self, taken: Moment, losses: list[float]) -> None:
        """A step of the loop has ended."""
        seconds, in_optimizers, self._in_optimizers_s = (
            self._seconds(taken),
            self._in_optimizers_s,
            0.0,
        )
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
