"""One training loop: its parts and its switches in force, which change between two steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import first_line
from .calls import AcceleratedCall, origin_of_nan
from .judging import Judging
from .meter import Meter
from .race import PLAIN, LossWatch, Way
from .switches import SWITCHES, Parts, Switch
from .switches.base import Call, Refusal
from .watcher import Watcher, has_autocast

logger = logging.getLogger("paifuser_lab.accelerate")
CHECK_EVERY = 10  # steps between looks at the structure
READ_EVERY = 10  # steps on a GPU, where reading a loss waits for it
MOST_STRAY_STEPS = 8  # of another optimizer without one of the leader: another loop has begun
MOST_BROKEN = 10  # losses in a row that are not finite
MOST_NOTES = 50


class Loop:
    """The models and optimizers of a loop, and its switches: judged, or in force as asked for."""

    def __init__(self, meter: Meter) -> None:
        self.watcher, self.judging = Watcher(self), Judging(self, meter)
        self.switches: dict[str, Switch] = {}
        self.parts = Parts()
        self.calls: dict[nn.Module, AcceleratedCall] = {}
        self.obstacles: dict[str, str] = {}
        self.on: Way = PLAIN
        self.lately: Way = PLAIN  # before that, since the leader's step: gradients may be theirs
        self.steps, self.stopped = 0, ""
        self._next_check = self._stray_steps = self._broken = self._restarts = 0
        self._notes: dict[str, str] = {}  # by subject, the last one last
        self._strangers: WeakSet[Optimizer] = WeakSet()
        self._skips = False  # the steps that follow this backward pass
        self._loss_watch = LossWatch()
        self._structure: tuple[Any, ...] = ()
        self._watched_state: tuple[bool, Way, Way] | None = None

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
        return list(self._notes.values())

    def note(self, text: str, subject: str = "") -> None:
        """Note what has happened, in place of an earlier note about the same."""
        self._notes.pop(subject or text, None)
        self._notes[subject or text] = text
        if len(self._notes) > MOST_NOTES:
            del self._notes[next(iter(self._notes))]

    def _inexact(self) -> list[str]:
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
        self._structure = self.parts.structure()
        self._forget_judgement()
        self.find_obstacles()
        self.go(self.asked)
        self.judging.begin_step()

    def add(self, switches: Sequence[Switch]) -> None:
        """Add switches: in force at once where asked for, else offered at a step in no block."""
        known = [*self.switches.values(), *switches]
        order = list(SWITCHES.values())
        known.sort(key=lambda switch: order.index(type(switch)))
        self.switches = {switch.label: switch for switch in known}
        self.judging.is_at_rest = False
        if self.parts.optimizers and not self.stopped:
            self.reconsider()

    def reconsider(self) -> None:
        """Find anew what a changed loop cannot have; the block that runs now was of another."""
        way = self.on
        self.judging.block = None
        self.go(PLAIN)
        self.find_obstacles()
        for label in sorted((way | self.judging.judge.offers.keys()) & self.obstacles.keys()):
            if label in way:
                self.take_back([label], self.obstacles[label])
            else:
                self.judging.judge.withdraw([label], self.obstacles[label])
        self.go((way - self.obstacles.keys()) | self.asked)

    def remove(self, name: str) -> None:
        """Restore what a switch changed and forget it."""
        for label in [label for label, switch in self.switches.items() if switch.name == name]:
            self.judging.forget_offer(label)
            self.go(self.on - {label})
            del self.switches[label]
        self.judging.is_at_rest = False

    def stop(self, why: str) -> None:
        """Run without any switch from now on."""
        self.stopped = why
        self.judging.block = None
        self.go(PLAIN)
        self.note(f"stopped: {why}")
        logger.warning("stopped: %s", why)

    # What the watcher tells, in the order of a step: backward, then each optimizer's step.

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        if any(loss.numel() == 1 for loss in losses):
            self._skips = False
        for switch in self._of_gradients():
            switch.begin_backward(losses)

    def end_backward(self) -> None:
        """A backward pass has ended, and nobody has touched the gradients yet."""
        for switch in self._of_gradients():
            switch.end_backward(self.parts)

    def before_step(self, optimizer: Optimizer, *, has_closure: bool = False) -> bool:
        """Whether an optimizer may step, as each switch says that was on for its gradients."""
        seen = self.watcher.losses
        # before all else: what has broken the loss is taken back before its gradients are used
        if seen.held and (self.parts.device.type == "cpu" or self.steps % READ_EVERY == 0):
            self._check_finite(seen.read())
        if optimizer not in self.parts.optimizers:
            return True
        if has_closure and not self.parts.has_closure:
            self.parts.has_closure = True
            self.reconsider()
        if bad := [loss for loss in seen.of_step if not math.isfinite(loss)]:
            self._skips |= self._take_back_inexact(bad[0], is_in_time=not seen.is_late)
        # other processes wait for this one's gradients, also in a step that is skipped
        answers = [switch.before_step(optimizer) for switch in self._of_gradients()]
        if self._skips:
            return False
        self.judging.enter_optimizer()  # last: what switches do before is no part of its time
        return all(answers)

    def after_step(self, optimizer: Optimizer) -> None:
        self.count_passed()
        if optimizer not in self.parts.optimizers:
            self._meet(optimizer)
            return
        self.judging.leave_optimizer()
        for label in self.on:
            self.switches[label].after_step(optimizer)
        if optimizer is not self.leader:
            self._stray_steps += 1
            if self._stray_steps > MOST_STRAY_STEPS:
                self._begin_again("another loop has begun")
            return
        self._stray_steps = 0
        if self.steps >= self._next_check and self._structure != self.parts.structure():
            self._begin_again("the model or the optimizer has changed its structure")
            return
        if self.watcher.is_searching and not self._strangers:
            self.watcher.end_search()
        self._end_step(self.watcher.losses.end_step())
        self.watch_what_is_needed()

    def _end_step(self, losses: Sequence[float]) -> None:
        """The leader has stepped: take in the step's time and losses, and choose how to go on."""
        is_due = self.steps >= self._next_check
        if is_due:
            self._next_check = self.steps + CHECK_EVERY
        self.steps += 1
        self.lately = PLAIN
        if self.judging.is_at_rest and not is_due:
            self._note_losses(losses)
            return
        taken = self.judging.end_step()  # before the losses are looked at, which is not its time
        self._note_losses(losses)
        self.judging.go_on(taken, losses)

    def note_evaluation(self) -> None:
        """A model was evaluated in this step, whose time does not count."""
        self.judging.is_disturbed = True

    def count_passed(self) -> None:
        """Count the steps of a loop at rest that the watcher has not told of."""
        self.steps += self.watcher.take_passed()

    def watch_what_is_needed(self) -> None:
        """Watch of the loop what its switches need now, and nothing else: each step pays for it."""
        state = (self.judging.is_at_rest, self.on, self.lately)
        if state == self._watched_state or not self.watcher.is_on:
            return
        self._watched_state = state
        steps = losses = calls = True
        if self.judging.is_at_rest:
            on = [switch for label, switch in self.switches.items() if label in self.on]
            steps = bool(self.lately) or any(switch.follows_steps for switch in on)
            losses = not all(switch.is_exact for switch in on)
            calls = any(switch.is_of_calls for switch in on)
        self.watcher.watch(steps=steps, losses=losses)
        self.watcher.pass_over(() if steps or losses or calls else self.parts.optimizers)
        for call in self.calls.values():
            if calls:
                call.place()
            else:
                call.pause()

    def _meet(self, optimizer: Optimizer) -> None:
        """An optimizer that is not known: its models are known once it steps during a search."""
        if not self.watcher.is_searching:
            self.watcher.search()
            self._strangers.add(optimizer)
            return
        self._strangers.discard(optimizer)
        models = self.watcher.models_of(optimizer)
        self.join(optimizer, models, autocast=self.watcher.has_autocast or has_autocast())
        self.watcher.losses.of_step = []
        self.watch_what_is_needed()

    def _begin_again(self, why: str) -> None:
        self.leave()
        self._restarts += 1
        count = f", {self._restarts} times by now" if self._restarts > 1 else ""
        self.note(
            f"judged anew from step {self.steps}{count}: {why}", subject=f"judged anew: {why}"
        )
        self._stray_steps = 0
        self.watcher.search()
        self.watch_what_is_needed()

    def _check_finite(self, losses: list[float]) -> None:
        """Name the layer where a NaN began, once; stop after too many of them."""
        bad = next((loss for loss in losses if not math.isfinite(loss)), None)
        self._broken = 0 if bad is None else self._broken + 1
        if self._broken == 1:
            origin = origin_of_nan(self.calls.values(), self.calls_of_copies(self.on))
            self.note(f"the loss is {bad}; {origin}")
            logger.warning("the loss is %s; %s", bad, origin)
        if self._broken == MOST_BROKEN:
            self.stop(f"the loss has not been finite for {MOST_BROKEN} steps")

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
            call.use(self.wrapped(call.model, call.plain, self.on) if self.on else None)

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
        self.judging.judge.withdraw(labels, why)
        for label in labels:
            if label in self.switches and not self.switches[label].is_judged:
                self.obstacles[label] = why
        note = f"{', '.join(labels)} taken back: {why}"
        self.note(note)
        logger.info("%s", note)
        if self.on.intersection(labels):
            self.go(self.on.difference(labels))

    def find_obstacles(self) -> None:
        """Note why this loop cannot have some switches, while they are off."""
        whys = {
            label: switch.obstacle(self.parts) or self._lacks_peak(switch)
            for label, switch in self.switches.items()
        }
        self.obstacles = {label: why for label, why in whys.items() if why}

    def _lacks_peak(self, switch: Switch) -> str:
        """Why a switch that the peak of memory decides cannot be judged; empty if it can."""
        is_by_peak = switch.offer.limit_bytes is not None
        if not is_by_peak or self.judging.meter.restart_peak(self.parts.device):
            return ""
        return "this system does not count the peak of a process's memory"

    def leave(self) -> None:
        """Restore the models, the optimizers and torch's settings."""
        self.go(PLAIN)
        for call in self.calls.values():
            call.remove()
        self.parts, self.calls, self.stopped, self.lately = Parts(), {}, "", PLAIN
        self._forget_judgement()

    def end(self) -> None:
        """Restore everything, and see no more of the loop."""
        self.leave()
        self.watcher.stop()
        self._strangers.clear()
        self._watched_state = None

    def _forget_judgement(self) -> None:
        """The models or the optimizers are others; what switches have made is not of them."""
        self.judging.forget()
        for switch in self.switches.values():
            switch.forget()

    def recover(self, call: AcceleratedCall, error: Exception, again: Callable[[], Any]) -> Any:
        """A training call has failed: run it again where a switch has an answer, or without the
        switch that has refused it, or without any; if that fails too, the error is the loop's own.
        """
        for label, switch in self.switches.items():
            if label in self.on and switch.recover(call.model, error):
                return again()
        if isinstance(error, Refusal):
            self.judging.block = None
            self.take_back([error.label], str(error))
            return again()
        way = self.on
        self.judging.block = None
        self.go(PLAIN)
        try:
            output = again()
        except Exception:
            self.go(way)
            raise
        failed = way - self.asked or way
        why = f"the model fails with it ({first_line(error)[:120]})"
        if not (way - self.asked and self.judging.fail(failed, why)):
            self.take_back(sorted(failed), why)
        return output

    def _take_back_inexact(self, loss: float, *, is_in_time: bool) -> bool:
        """Take back what may have made a loss not finite; whether the step can yet be skipped."""
        inexact = self._inexact()
        if not inexact:
            return False
        self.judging.block = None
        what = "the step was skipped" if is_in_time else "a step with its gradients was taken"
        self.take_back(inexact, f"the loss became {loss}; {what}")
        return is_in_time

    def _note_losses(self, losses: Sequence[float]) -> None:
        for loss in losses:
            for label, switch in self.switches.items():
                if label in self.on:
                    switch.note_loss(loss)
        if self.judging.block is not None:
            return
        inexact = self._inexact()
        for loss in losses:
            why = self._loss_watch.see(loss)
            if why and inexact:
                self.watch_losses_anew()
                self.take_back(inexact, why)
                return

    def watch_losses_anew(self) -> None:
        """The losses from now on are of another way, whose band is its own."""
        self._loss_watch = LossWatch()
