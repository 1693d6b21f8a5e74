"""One training loop: its parts, the way in which it runs now, and the blocks of steps that are
judged. Everything changes between two steps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import first_line
from .calls import AcceleratedCall
from .judge import Judge
from .meter import Meter, Moment, OpenBlock
from .race import PLAIN, LossWatch, Way
from .switches import SWITCHES, Parts, Switch
from .switches.base import Call, Course, Refusal

logger = logging.getLogger("paifuser_lab.accelerate")
WARM_STEPS = 2
CHECK_EVERY = 10  # steps between looks at the structure
LONG_STEP_S = 0.01  # beside which it is nothing to watch them
ALWAYS = 10  # steps in a row with an evaluation: it is a part of the loop
MOST_NOTES = 50


class Watched(NamedTuple):
    """What is watched of a loop's steps beside that they end, at a cost for each of them."""

    steps: bool = True  # that they begin
    losses: bool = True
    calls: bool = True


class Loop:
    """The models and optimizers of a loop, and its switches: judged, or in force because they were
    asked for.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.switches: dict[str, Switch] = {}
        self.parts = Parts()
        self.calls: dict[nn.Module, AcceleratedCall] = {}
        self.obstacles: dict[str, str] = {}
        self.judge: Judge | None = None
        self.on: Way = PLAIN
        self.lately: Way = PLAIN  # before that, since the leader's step: gradients may be theirs
        self.is_at_rest = False  # nothing is to be judged, and steps are short
        self._notes: dict[str, str] = {}  # by subject, the last one last
        self.steps, self.stopped, self._next_check = 0, "", 0
        self.is_disturbed = False
        self.is_wall = True
        self._tended_s = 0.0  # not paid for yet
        self.between_steps: Callable[[], None] = lambda: None  # called outside of what is timed
        self._step_s = math.inf  # the shortest
        self._evaluations = 0  # steps in a row with an evaluation, or `ALWAYS`
        self._block: OpenBlock | None = None
        self._watch = LossWatch()
        self._last = self._began = meter.now(torch.device("cpu"))
        self._structure: tuple[Any, ...] = ()

    @property
    def leader(self) -> Optimizer | None:
        """The optimizer whose steps are counted."""
        return self.parts.optimizers[0] if self.parts.optimizers else None

    @property
    def asked(self) -> Way:
        """The switches that are in force without being judged."""
        return frozenset(
            label
            for label, switch in self.switches.items()
            if not switch.is_judged and label not in self.obstacles
        )

    @property
    def notes(self) -> list[str]:
        """What has happened, in order."""
        return list(self._notes.values())

    def note(self, text: str, subject: str = "") -> None:
        """Note what has happened, in place of an earlier note about the same."""
        self._notes.pop(subject or text, None)
        self._notes[subject or text] = text
        if len(self._notes) > MOST_NOTES:
            del self._notes[next(iter(self._notes))]

    @property
    def watched(self) -> Watched:
        """What has to be watched for the switches in force and for those that are judged."""
        if not self.is_at_rest:
            return Watched()
        on = [switch for label, switch in self.switches.items() if label in self.on]
        return Watched(
            steps=bool(self.lately) or any(map(_follows_steps, on)),
            losses=not all(switch.is_exact for switch in on),
            calls=any(switch.is_of_calls for switch in on),
        )

    def place_calls(self, is_watching: bool) -> None:
        """Stand in for the models' calls, or give them back."""
        for call in self.calls.values():
            if is_watching:
                call.place()
            else:
                call.pause()

    def inexact(self) -> list[str]:
        """The judged switches in force that change results beyond rounding in fp32."""
        return [
            label
            for label, switch in self.switches.items()
            if label in self.on and switch.is_judged and not switch.is_exact
        ]

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
        self._find_obstacles()
        self.go(self.asked)
        self._last = self.meter.now(self.parts.device)

    def add(self, switches: Sequence[Switch]) -> None:
        """Add switches: those asked for are in force at once, others are offered at the next step
        that is in no block.
        """
        known = [*self.switches.values(), *switches]
        order = list(SWITCHES.values())
        known.sort(key=lambda switch: order.index(type(switch)))
        self.switches = {switch.label: switch for switch in known}
        self.is_at_rest = False
        if not self.parts.optimizers or self.stopped:
            return
        self.reconsider()

    def reconsider(self) -> None:
        """Find anew what this loop cannot have, since it or its switches have changed; the block
        that runs now was of another loop.
        """
        way, self._block = self.on, None
        self.go(PLAIN)
        self._find_obstacles()
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
                self.judge.offers.pop(label, None)  # so that it is raced if it comes again
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
        """Whether an optimizer may step, as the switches say that were on when its gradients were
        computed; each is asked.
        """
        answers = [switch.before_step(optimizer) for switch in self._of_gradients()]
        if self._block is not None:
            self._block.enter_optimizer(self.meter.now(self.parts.device, is_measuring=True))
        return all(answers)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer of the loop has stepped."""
        if self._block is not None:
            self._block.leave_optimizer(self.meter.now(self.parts.device, is_measuring=True))
        for label in self.on:
            self.switches[label].after_step(optimizer)

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        """A backward pass begins."""
        for switch in self._of_gradients():
            switch.begin_backward(losses)

    def end_backward(self) -> None:
        """A backward pass has ended, and nobody has touched the gradients yet."""
        for switch in self._of_gradients():
            switch.end_backward(self.parts)

    def _of_gradients(self) -> list[Switch]:
        return [
            switch
            for label, switch in self.switches.items()
            if label in self.on or (switch.is_judged and label in self.lately)
        ]

    def go(self, way: Way) -> None:
        """Run in this way from now on; a switch that cannot take effect is taken back."""
        self.lately |= self.on
        for label in [label for label in reversed(self.switches) if label in self.on - way]:
            self.switches[label].turn_off(self.parts)
            self.on -= {label}
        for label in [label for label in self.switches if label in way - self.on]:
            try:
                self.switches[label].turn_on(self.parts)
            except Exception as error:
                self.switches[label].turn_off(self.parts)
                self.take_back([label], f"it cannot be turned on ({first_line(error)[:120]})")
            else:
                self.on |= {label}
        for call in self.calls.values():
            if not self.on:
                call.use(None)
                continue
            call.use(self.wrapped(call.model, call.plain, self.on))

    def wrapped(self, model: nn.Module, call: Call, way: Way) -> Call:
        """The call of a model, wrapped by the switches of a way."""
        for label, switch in self.switches.items():
            if label in way:
                call = switch.wrap(model, call)
        return call

    def calls_of_copies(self, way: Way) -> Callable[[nn.Module], Call]:
        """The call of a model's copy, wrapped by the switches of a way."""
        return lambda twin: self.wrapped(twin, lambda args, kwargs: twin(*args, **kwargs), way)

    def take_back(self, labels: Sequence[str], why: str) -> None:
        """Take switches back for good, named in the log."""
        if self.judge is not None:
            self.judge.withdraw(labels, why)
        for label in labels:
            if label in self.switches and not self.switches[label].is_judged:
                self.obstacles[label] = why
        note = f"{', '.join(labels)} taken back: {why}"
        self.note(note)
        logger.info("%s", note)

    def _find_obstacles(self) -> None:
        """Note why this loop cannot have some switches, while they are off."""
        whys = {label: switch.obstacle(self.parts) for label, switch in self.switches.items()}
        self.obstacles = {label: why for label, why in whys.items() if why}

    def _tend(self) -> None:
        """Let the switches prepare, offer those that have become ready, and end those that cannot
        go on. What it takes of the loop is paid from what judging may cost.
        """
        assert self.judge is not None
        began = self.meter.now(self.parts.device)
        for label, switch in self.switches.items():
            if label in self.obstacles:
                continue
            if why := switch.tend(self._course(label), is_on=label in self.on):
                if label in self.on:
                    self.take_back([label], why)
                    self.go(self.on - {label})
                else:
                    self.judge.withdraw([label], why)
                    self.obstacles[label] = why
            elif switch.is_judged and switch.is_ready and label not in self.judge.offers:
                self.judge.add_offer(switch.offer)
        taken = self.meter.now(self.parts.device).since(began)
        self._tended_s += taken.wall_s if self.is_wall else taken.cpu_s

    def _course(self, label: str) -> Course:
        return Course(
            self.steps,
            self._last.since(self._began).wall_s,
            {call.model: call.last for call in self.calls.values() if call.last is not None},
            self.calls_of_copies(self.on | {label}),
        )

    def structure_now(self) -> tuple[Any, ...]:
        """The identity of every weight, and the sizes of the optimizers' groups."""
        weights = [tuple(map(id, model.parameters())) for model in self.parts.models]
        groups = [
            tuple(len(group["params"]) for group in optimizer.param_groups)
            for optimizer in self.parts.optimizers
        ]
        return (*weights, *groups)

    def leave(self) -> None:
        """Restore the models, the optimizers and torch's settings."""
        self.go(PLAIN)
        for call in self.calls.values():
            call.remove()
        self.parts, self.calls, self.stopped, self.lately = Parts(), {}, "", PLAIN
        self._forget_judgement()

    def _forget_judgement(self) -> None:
        """The models or the optimizers are others; what switches have made is not of them."""
        self.judge, self._block, self.is_at_rest = None, None, False
        self._evaluations, self._step_s = 0, math.inf
        for switch in self.switches.values():
            switch.forget()

    def is_changed(self) -> bool:
        """Whether the models or the optimizers' groups are no longer those that joined."""
        return self.steps >= self._next_check and self._structure != self.structure_now()

    def recover(self, call: AcceleratedCall, error: Exception, again: Callable[[], Any]) -> Any:
        """A training call has failed: run it again where a switch has an answer, or without the
        switch that has refused it, or without any; if that fails too, the error is the loop's own.
        """
        for label, switch in self.switches.items():
            if label in self.on and switch.recover(call.model, error):
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
        """Whether nothing is to be judged, nor made for that, before the next check."""
        if self.stopped or self.judge is None or self._block is not None:
            return bool(self.stopped)
        return not any(
            switch.is_pending(self._course(label))
            for label, switch in self.switches.items()
            if label not in self.obstacles and label not in self.judge.offers
        )

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
            self._tend()
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
        self._find_obstacles()
        offered = [
            switch
            for label, switch in self.switches.items()
            if switch.is_judged and switch.is_ready and label not in self.obstacles
        ]
        self.judge = Judge(
            [switch.offer for switch in offered if switch.is_combined],
            [[switch.offer] for switch in offered if not switch.is_combined],
        )
        self._next_block()

    def _next_block(self) -> None:
        assert self.judge is not None
        began = self.meter.now(self.parts.device)
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
        if is_changed:
            cost_s, self._tended_s = cost_s + self._tended_s, 0.0
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
        is_shared = any(self.switches[label].needs_wall for label in names)
        is_shared |= torch.get_num_threads() > 1
        return is_shared or self.parts.device.type != "cpu" or self.meter.is_coarse


def _follows_steps(switch: Switch) -> bool:
    """Whether a switch acts on optimizers' steps, or on losses, which are read there."""
    kind = type(switch)
    acts = (kind.before_step, kind.after_step) != (Switch.before_step, Switch.after_step)
    return acts or not switch.is_exact
