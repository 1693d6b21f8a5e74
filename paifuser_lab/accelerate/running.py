"""The way in which a training loop runs now: its parts, and the switches in force."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import first_line
from .calls import AcceleratedCall
from .judge import Judge
from .race import PLAIN, Way
from .switches import Parts, Switch
from .switches.base import Call
from .switches.compiled import Compiled
from .switches.memory_reuse import MemoryReuse

logger = logging.getLogger("paifuser_lab.accelerate")
MOST_NOTES = 50


class Watched(NamedTuple):
    """What is watched of a loop's steps beside that they end, at a cost for each of them."""

    steps: bool = True  # that they begin
    losses: bool = True
    calls: bool = True


class Running:
    """The models and optimizers of a loop, and which switches are in force."""

    def __init__(self, switches: Sequence[Switch]) -> None:
        self.switches = {switch.label: switch for switch in switches}
        self.parts = Parts()
        self.calls: dict[nn.Module, AcceleratedCall] = {}
        self.obstacles: dict[str, str] = {}
        self.judge: Judge | None = None
        self.on: Way = PLAIN
        self.lately: Way = PLAIN  # before that, since the leader's step: gradients may be theirs
        self.is_at_rest = False  # nothing is to be judged, and steps are short
        self._notes: dict[str, str] = {}  # by subject, the last one last

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

    def allows_step(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer may step, as the switches say that were on when its gradients were
        computed; each is asked.
        """
        answers = [switch.before_step(optimizer) for switch in self._of_gradients()]
        return all(answers)

    def end_optimizer_step(self, optimizer: Optimizer) -> None:
        """An optimizer of the loop has stepped."""
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

    def find_obstacles(self, switches: Iterable[Switch]) -> None:
        """Note why this loop cannot have some switches, while they are off."""
        for switch in switches:
            self.obstacles.pop(switch.label, None)
            if why := switch.obstacle(self.parts):
                self.obstacles[switch.label] = why

    def is_reuse_proven(self) -> bool:
        """Whether each model can write into its inputs; else that is no longer offered."""
        switch = self.switches["memory_reuse"]
        assert isinstance(switch, MemoryReuse) and self.judge is not None
        for call in self.calls.values():
            if call.last is None or call.model in switch.proven:
                continue
            why = switch.prove(call.model, *call.last, self.calls_of_copies(self.on))
            if why:
                self.judge.withdraw(["memory_reuse"], why)
                return False
        return True

    @property
    def compiled(self) -> Compiled | None:
        """The switch whose code is made aside, unless this loop cannot have it."""
        switch = self.switches.get("compile")
        if not isinstance(switch, Compiled) or switch.label in self.obstacles:
            return None
        return switch

    def tend_compiled(self, steps: int, seconds: float) -> None:
        """Let the compiler start aside, offer what it has made, and end a storm."""
        switch = self.compiled
        if switch is None or self.judge is None:
            return
        if switch.failure:
            self.obstacles["compile"] = switch.failure
        elif "compile" in self.on and switch.is_storm():
            self.take_back(["compile"], "the loop makes it compile again and again")
            self.go(self.on - {"compile"})
        elif switch.is_ready and "compile" not in self.judge.offers:
            self.judge.add_offer(switch.offer)
        elif switch.thread is None and switch.is_worth_it(steps, seconds):
            last = {call.model: call.last for call in self.calls.values() if call.last is not None}
            if last:  # else the next step, whose calls are watched
                switch.start(last, self.calls_of_copies(self.on | {"compile"}))

    def structure_now(self) -> tuple[Any, ...]:
        """The identity of every weight, and the sizes of the optimizers' groups."""
        weights = [tuple(map(id, model.parameters())) for model in self.parts.models]
        groups = [
            tuple(len(group["params"]) for group in optimizer.param_groups)
            for optimizer in self.parts.optimizers
        ]
        return (*weights, *groups)


def _follows_steps(switch: Switch) -> bool:
    """Whether a switch acts on optimizers' steps, or on losses, which are read there."""
    kind = type(switch)
    acts = (kind.before_step, kind.after_step) != (Switch.before_step, Switch.after_step)
    return acts or not switch.is_exact
