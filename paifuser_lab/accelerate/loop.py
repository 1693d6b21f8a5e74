"""One training loop: its parts, the way in which it runs now, and the blocks of steps that are
judged. Everything changes between two steps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import first_line
from .block import OpenBlock
from .calls import AcceleratedCall
from .judge import Judge
from .losses import LossWatch
from .meter import Meter, Moment
from .race import PLAIN
from .running import Running
from .switches import SWITCHES, Parts, Switch
from .switches.base import Refusal
from .switches.channels_last import ChannelsLast
from .switches.compiled import Compiled

logger = logging.getLogger("paifuser_lab.accelerate")
WARM_STEPS = 2
CHECK_EVERY = 10  # steps between looks at the structure
LONG_STEP_S = 0.01  # beside which it is nothing to watch them
ALWAYS = 10  # steps in a row with an evaluation: it is a part of the loop
TOGETHER = ("precision", "channels_last")  # raced in every combination


class Loop(Running):
    """A loop whose switches are judged, or in force because they were asked for."""

    def __init__(self, switches: Sequence[Switch], meter: Meter) -> None:
        super().__init__(switches)
        self.meter = meter
        self.steps, self.stopped, self._next_check = 0, "", 0
        self.is_disturbed = False
        self.is_wall = True
        self.between_steps: Callable[[], None] = lambda: None  # called outside of what is timed
        self._step_s = math.inf  # the shortest
        self._evaluations = 0  # steps in a row with an evaluation, or `ALWAYS`
        self._block: OpenBlock | None = None
        self._watch = LossWatch()
        self._last = self._began = meter.now(torch.device("cpu"))
        self._structure: tuple[Any, ...] = ()

    def join(self, optimizer: Optimizer, models: Sequence[nn.Module], *, autocast: bool) -> None:
        """Take in an optimizer and its models; judging begins anew."""
        self.go(PLAIN)
        self.parts.optimizers.append(optimizer)
        self.parts.has_own_autocast |= autocast
        for model in models:
            if model not in self.calls:
                self.parts.models.append(model)
                self.calls[model] = AcceleratedCall(model, self)
        self._structure = self.structure_now()
        self._forget_judgement()
        self.find_obstacles(self.switches.values())
        self.go(self.asked)
        self._last = self.meter.now(self.parts.device)

    def add(self, switches: Sequence[Switch]) -> None:
        """Offer more switches; those asked for are in force at once."""
        known = [*self.switches.values(), *switches]
        order = list(SWITCHES.values())
        known.sort(key=lambda switch: order.index(type(switch)))
        self.switches = {switch.label: switch for switch in known}
        self.is_at_rest = False
        if not self.parts.optimizers or self.stopped:
            return
        self.reconsider()
        for switch in switches:
            is_free = switch.is_judged and switch.label not in self.obstacles
            if self.judge is not None and is_free and not isinstance(switch, Compiled):
                self.judge.add_offer(switch.offer)

    def reconsider(self) -> None:
        """Find anew what this loop cannot have, since it or its switches have changed; the block
        that runs now was of another loop.
        """
        way, self._block = self.on, None
        self.go(PLAIN)
        self.find_obstacles(self.switches.values())
        offers = self.judge.offers.keys() if self.judge is not None else set()
        for label in sorted((way | offers) & self.obstacles.keys()):
            if label in way:
                self.take_back([label], self.obstacles[label])
            elif self.judge is not None:
                self.judge.withdraw([label], self.obstacles[label])
        self.go((way - self.obstacles.keys()) | self.asked)

    def remove(self, name: str) -> None:
        """Restore what a switch changed and forget it."""
        for label in [label for label, switch in self.switches.items() if switch.name == name]:
            if self.judge is not None:
                self.judge.withdraw([label], "turned off")
                self._block = None
            self.go(self.on - {label})
            del self.switches[label]
        self.is_at_rest = False

    def stop(self, why: str) -> None:
        """Run without any switch from now on."""
        self.stopped, self._block = why, None
        self.go(PLAIN)
        self.note(f"stopped: {why}")
        logger.warning("stopped: %s", why)

    def before_step(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer may step."""
        may_step = self.allows_step(optimizer)
        if self._block is not None:
            self._block.enter_optimizer(self.meter.now(self.parts.device, is_measuring=True))
        return may_step

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer of the loop has stepped."""
        if self._block is not None:
            self._block.leave_optimizer(self.meter.now(self.parts.device, is_measuring=True))
        self.end_optimizer_step(optimizer)

    def leave(self) -> None:
        """Restore the models, the optimizers and torch's settings."""
        self.go(PLAIN)
        for call in self.calls.values():
            call.remove()
        self.parts, self.calls, self.stopped, self.lately = Parts(), {}, "", PLAIN
        self._forget_judgement()

    def _forget_judgement(self) -> None:
        """The models or the optimizers are others; what was compiled, too, is not of them."""
        self.judge, self._block, self.is_at_rest = None, None, False
        self._evaluations, self._step_s = 0, math.inf
        switch = self.switches.get("compile")
        if isinstance(switch, Compiled):
            switch.forget()

    def is_changed(self) -> bool:
        """Whether the models or the optimizers' groups are no longer those that joined."""
        return self.steps >= self._next_check and self._structure != self.structure_now()

    def recover(self, call: AcceleratedCall, error: Exception, again: Callable[[], Any]) -> Any:
        """A training call has failed: run it with views reshaped, or without the switch that has
        refused it, or without any; if that fails too, the error is the loop's own.
        """
        last = self.switches.get("channels_last")
        if (
            isinstance(last, ChannelsLast)
            and last.label in self.on
            and last.reshape_views(call.model, error)
        ):
            return again()
        if isinstance(error, Refusal):
            self._block = None
            self.take_back([error.label], str(error))
            self.go(self.on - {error.label})
            return again()
        way, self._block = self.on, None
        self.go(PLAIN)
        try:
            output = again()
        except Exception:
            self.go(way)
            raise
        failed = way - self.asked or way
        why = f"the model fails with it ({first_line(error)[:120]})"
        if self.judge is not None and self.judge.race is not None and way - self.asked:
            self.judge.fail(failed, why)
        else:
            self.take_back(sorted(failed), why)
        return output

    def end_step(self, losses: Sequence[float]) -> None:
        """The leader has stepped: take in the step's time and losses, and choose how to go on."""
        is_due = self.steps >= self._next_check
        if is_due:
            self._next_check = self.steps + CHECK_EVERY
        self.steps += 1
        self.lately = PLAIN
        if self.is_at_rest and not is_due:
            self._note_losses(losses)
            return
        device, block = self.parts.device, self._block
        now = self.meter.now(device, is_measuring=block is not None)
        taken = now.since(self._last)
        if not self.is_at_rest:
            self._step_s = min(self._step_s, taken.wall_s)
        self._note_losses(losses)
        if not self.stopped:
            self._advance(taken, losses)
        self.between_steps()
        self._last = self.meter.now(device, is_measuring=self._block is not None)
        self.is_at_rest = self._step_s < LONG_STEP_S and self._is_settled()

    def _is_settled(self) -> bool:
        """Whether nothing is to be judged, nor compiled for that, before the next check."""
        if self.stopped or self.judge is None or self._block is not None:
            return bool(self.stopped)
        switch = self.compiled
        if switch is None or switch.label in self.judge.offers:
            return True
        return switch.thread is None and not switch.is_worth_it(self.steps, self._age_s)

    @property
    def _age_s(self) -> float:
        return self._last.since(self._began).wall_s

    def take_back_inexact(self, loss: float, *, is_in_time: bool) -> bool:
        """Take back what may have made a loss not finite; whether the step is to be skipped, if it
        is in time for that.
        """
        inexact = self.inexact()
        if not inexact:
            return False
        self._block = None
        what = "the step was skipped" if is_in_time else "a step with its gradients was taken"
        self.take_back(inexact, f"the loss became {loss}; {what}")
        self.go(self.on - set(inexact))
        return is_in_time

    def _note_losses(self, losses: Sequence[float]) -> None:
        for loss in losses:
            for label, switch in self.switches.items():
                if label in self.on:
                    switch.note_loss(loss)
        if self._block is not None:
            return
        inexact = self.inexact()
        for loss in losses:
            why = self._watch.see(loss)
            if why and inexact:
                self._watch = LossWatch()
                self.take_back(inexact, why)
                self.go(self.on - set(inexact))
                return

    def _advance(self, taken: Moment, losses: Sequence[float]) -> None:
        block = self._block
        is_disturbed = self._is_disturbed_now()
        if self.judge is None:
            if self.steps >= WARM_STEPS:
                self._begin()
            return
        if block is None:
            self.tend_compiled(self.steps, self._age_s)
            self._next_block()
        elif is_disturbed:
            return
        else:
            block.add(taken, list(losses))
            if block.is_over(self.judge.race):
                self._end_block(block)

    def _is_disturbed_now(self) -> bool:
        """Whether an evaluation came into this step; in a loop that evaluates in every step, as one
        that acts and learns, it is a part of it.
        """
        is_disturbed, self.is_disturbed = self.is_disturbed, False
        if self._evaluations < ALWAYS:
            self._evaluations = self._evaluations + 1 if is_disturbed else 0
            if self._evaluations == ALWAYS:
                self.note("the model is evaluated in every step, which counts as a part of it")
        return is_disturbed and self._evaluations < ALWAYS

    def _begin(self) -> None:
        """Offer what this loop can have to a new judge."""
        self.find_obstacles(self.switches.values())
        offered = [
            switch
            for label, switch in self.switches.items()
            if switch.is_judged and label not in self.obstacles and not isinstance(switch, Compiled)
        ]
        self.judge = Judge(
            [switch.offer for switch in offered if switch.name in TOGETHER],
            [[switch.offer] for switch in offered if switch.name not in TOGETHER],
        )
        self._next_block()

    def _next_block(self) -> None:
        assert self.judge is not None
        began = self.meter.now(self.parts.device)
        way = self.judge.next_way(self.steps)
        while way is not None and "memory_reuse" in way and not self.is_reuse_proven():
            way = self.judge.next_way(self.steps)
        if way is None:
            if self.on != self.judge.best | self.asked:
                self.go(self.judge.best | self.asked)
                self._watch = LossWatch()
            if self._block is not None:
                on = ", ".join(sorted(self.on)) or "nothing"
                logger.info("on: %s after %d steps", on, self.steps)
            self._block = None
            return
        before = self.on
        self.go(way | self.asked)
        changed = self.meter.now(self.parts.device).since(began)
        is_wall = self._needs_wall()
        is_changed = self.on != before
        cost_s = changed.wall_s if is_wall else changed.cpu_s
        self._block = OpenBlock(way, is_changed, is_wall, cost_s if is_changed else 0.0)
        self.is_wall = is_wall if self.judge.judged_steps == 0 else self.is_wall
        if self.judge.race is not None and self.judge.race.has_limit:
            self.meter.trim(self.parts.device)
        self._block.has_peak = self.meter.restart_peak(self.parts.device)

    def _end_block(self, block: OpenBlock) -> None:
        assert self.judge is not None
        peak = self.meter.peak_bytes(self.parts.device) if block.has_peak else None
        self.judge.add(block.closed(peak), self.steps)
        self._next_block()

    def _needs_wall(self) -> bool:
        """Whether CPU time of this thread is not what a step takes."""
        assert self.judge is not None
        race = self.judge.race
        names = {label for way in race.ways for label in way} if race is not None else set()
        has_threads = any(self.switches[label].name == "threads" for label in names)
        is_shared = has_threads or torch.get_num_threads() > 1
        return is_shared or self.parts.device.type != "cpu" or self.meter.is_coarse
