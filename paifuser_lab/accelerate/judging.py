"""The steps of a loop as its judge decides by them: timed one by one, in blocks of one way each."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import nn

from .calls import AcceleratedCall
from .judge import Judge
from .meter import Meter, Moment, OpenBlock
from .race import Way
from .switches.base import Call, Course, Parts, Switch

logger = logging.getLogger("paifuser_lab.accelerate")
WARM_STEPS = 2
LONG_STEP_S = 0.01  # beside which it is nothing to watch them
ALWAYS = 10  # steps in a row with an evaluation: it is a part of the loop


class Judged(Protocol):
    """The loop, as far as judging knows it."""

    parts: Parts
    switches: dict[str, Switch]
    calls: dict[nn.Module, AcceleratedCall]
    obstacles: dict[str, str]
    on: Way
    steps: int
    stopped: str

    @property
    def asked(self) -> Way: ...
    def go(self, way: Way) -> None: ...
    def take_back(self, labels: Sequence[str], why: str) -> None: ...
    def find_obstacles(self) -> None: ...
    def note(self, text: str) -> None: ...
    def watch_losses_anew(self) -> None: ...
    def calls_of_copies(self, way: Way) -> Callable[[nn.Module], Call]: ...


class Judging:
    """Times the steps of a loop, offers its switches to a judge, and lets it run as that says."""

    def __init__(self, loop: Judged, meter: Meter) -> None:
        self.loop, self.meter = loop, meter
        self.is_wall = True
        self.is_disturbed = False  # by an evaluation in this step
        self.between_steps: Callable[[], None] = lambda: None  # called outside of what is timed
        self._tended_s = 0.0  # not paid for yet
        self._last = self._began = meter.now(torch.device("cpu"))
        self.forget()

    def forget(self) -> None:
        """The models or the optimizers are others."""
        self.judge, self.has_begun = Judge(()), False
        self.block: OpenBlock | None = None  # while what runs is one way
        self.is_at_rest = False  # nothing is to be judged, and steps are short
        self._evaluations = 0  # steps in a row with an evaluation, or `ALWAYS`
        self._step_s = math.inf  # the shortest

    @property
    def is_waiting(self) -> bool:
        """Whether the loop has yet to pay for what is to be judged next."""
        return self.judge.is_waiting(self.loop.steps)

    def forget_offer(self, label: str) -> None:
        """Judge a switch that is turned off as a new one if it comes again."""
        self.judge.withdraw([label], "turned off")
        self.judge.offers.pop(label, None)
        self.block = None

    def fail(self, way: Iterable[str], why: str) -> bool:
        """Let the race that runs go on without a way that fails; False if none runs."""
        if self.judge.race is None:
            return False
        self.judge.fail(frozenset(way), why)
        return True

    def enter_optimizer(self) -> None:
        if self.block is not None:
            self.block.enter_optimizer(self._now(is_measuring=True))

    def leave_optimizer(self) -> None:
        if self.block is not None:
            self.block.leave_optimizer(self._now(is_measuring=True))

    def begin_step(self) -> None:
        self._last = self._now()

    def end_step(self) -> Moment:
        """A step has ended: what it took."""
        taken = self._now(is_measuring=self.block is not None).since(self._last)
        if not self.is_at_rest:
            self._step_s = min(self._step_s, taken.wall_s)
        return taken

    def go_on(self, taken: Moment, losses: Sequence[float]) -> None:
        """Take in a step that has ended, and let the next one begin as the judge says."""
        if not self.loop.stopped:
            self._advance(taken, losses)
        self.between_steps()
        self._last = self._now(is_measuring=self.block is not None)
        self.is_at_rest = self._step_s < LONG_STEP_S and self._is_settled()

    def _now(self, *, is_measuring: bool = False) -> Moment:
        return self.meter.now(self.loop.parts.device, is_measuring=is_measuring)

    def _is_settled(self) -> bool:
        """Whether nothing is to be judged, nor made for that, before the next check."""
        if self.loop.stopped or not self.has_begun or self.block is not None:
            return bool(self.loop.stopped)
        return not any(
            switch.is_pending(self._course(label))
            for label, switch in self.loop.switches.items()
            if label not in self.loop.obstacles and label not in self.judge.offers
        )

    def _advance(self, taken: Moment, losses: Sequence[float]) -> None:
        block, is_disturbed = self.block, self._is_disturbed_now()
        if not self.has_begun:
            if self.loop.steps >= WARM_STEPS:
                self._begin()
        elif block is None:
            self._tend()  # what has become ready is in the race that begins next
            self._next_block()
        elif not is_disturbed:
            block.add(taken, list(losses))
            if block.is_over(self.judge.race):
                device = self.loop.parts.device
                peak = self.meter.peak_bytes(device) if block.has_peak else None
                self.judge.add(block.closed(peak), self.loop.steps)
                self._next_block()

    def _is_disturbed_now(self) -> bool:
        """Whether an evaluation disturbed this step; one in every step is a part of the loop."""
        is_disturbed, self.is_disturbed = self.is_disturbed, False
        if self._evaluations < ALWAYS:
            self._evaluations = self._evaluations + 1 if is_disturbed else 0
            if self._evaluations == ALWAYS:
                self.loop.note("the model is evaluated in every step, which counts as a part of it")
        return is_disturbed and self._evaluations < ALWAYS

    def _begin(self) -> None:
        """Offer what this loop can have to a new judge."""
        self.loop.find_obstacles()
        offered = [
            switch
            for label, switch in self.loop.switches.items()
            if switch.is_judged and switch.is_ready and label not in self.loop.obstacles
        ]
        self.has_begun = True
        self.judge = Judge(
            [switch.offer for switch in offered if switch.is_combined],
            [[switch.offer] for switch in offered if not switch.is_combined],
        )
        self._next_block()

    def _tend(self) -> None:
        """Let switches prepare, offer those that are ready, end others; judging pays for it."""
        loop, judge, began = self.loop, self.judge, self._now()
        for label, switch in loop.switches.items():
            if label in loop.obstacles:
                continue
            if why := switch.tend(self._course(label), is_on=label in loop.on):
                if label in loop.on:
                    loop.take_back([label], why)
                else:
                    judge.withdraw([label], why)
                    loop.obstacles[label] = why
            elif switch.is_judged and switch.is_ready and label not in judge.offers:
                judge.add_offer(switch.offer)
        taken = self._now().since(began)
        self._tended_s += taken.wall_s if self.is_wall else taken.cpu_s

    def _course(self, label: str) -> Course:
        return Course(
            self.loop.steps,
            self._last.since(self._began).wall_s,
            {call.model: call.last for call in self.loop.calls.values() if call.last is not None},
            self.loop.calls_of_copies(self.loop.on | {label}),
        )

    def _next_block(self) -> None:
        loop, judge, began = self.loop, self.judge, self._now()
        way = judge.next_way(loop.steps)
        if way is None:
            if loop.on != judge.best | loop.asked:
                loop.go(judge.best | loop.asked)
                loop.watch_losses_anew()
            if self.block is not None:
                on = ", ".join(sorted(loop.on)) or "nothing"
                logger.info("on: %s after %d steps", on, loop.steps)
            self.block = None
            return
        before = loop.on
        loop.go(way | loop.asked)
        changed = self._now().since(began)
        is_wall, cost_s = self._needs_wall(), 0.0
        if is_changed := loop.on != before:
            cost_s = (changed.wall_s if is_wall else changed.cpu_s) + self._tended_s
            self._tended_s = 0.0
        self.block = OpenBlock(way, is_changed, is_wall, cost_s)
        self.is_wall = is_wall if judge.judged_steps == 0 else self.is_wall
        if judge.race is not None and judge.race.has_limit:
            self.meter.trim(loop.parts.device)
        # last: what was held before the block does not count
        self.block.has_peak = self.meter.restart_peak(loop.parts.device)

    def _needs_wall(self) -> bool:
        """Whether CPU time of this thread is not what a step takes."""
        ways: Sequence[Way] = self.judge.race.ways if self.judge.race is not None else ()
        labels = {label for way in ways for label in way}
        is_shared = any(self.loop.switches[label].needs_wall for label in labels)
        is_shared |= torch.get_num_threads() > 1
        return is_shared or self.loop.parts.device.type != "cpu" or self.meter.is_coarse
