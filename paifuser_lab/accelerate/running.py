"""The way in which a training loop runs now: its parts, and the switches in force."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import first_line
from .calls import AcceleratedCall
from .judge import Judge
from .race import PLAIN, Way
from .switches import Parts, Switch
from .switches.base import Call

logger = logging.getLogger("paifuser_lab.accelerate")


class Running:
    """The models and optimizers of a loop, and which switches are in force."""

    def __init__(self, switches: Sequence[Switch]) -> None:
        self.switches = {switch.label: switch for switch in switches}
        self.parts = Parts()
        self.calls: dict[nn.Module, AcceleratedCall] = {}
        self.obstacles: dict[str, str] = {}
        self.judge: Judge | None = None
        self.on: Way = PLAIN
        self.notes: list[str] = []

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

    def inexact(self) -> list[str]:
        """The judged switches in force that change results beyond rounding in fp32."""
        return [
            label
            for label, switch in self.switches.items()
            if label in self.on and switch.is_judged and not switch.is_exact
        ]

    def allows_step(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer may step, as its switches say; each is asked."""
        answers = [
            switch.before_step(optimizer)
            for label, switch in self.switches.items()
            if label in self.on
        ]
        return all(answers)

    def end_optimizer_step(self, optimizer: Optimizer) -> None:
        """An optimizer of the loop has stepped."""
        for label in self.on:
            self.switches[label].after_step(optimizer)

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        """A backward pass begins."""
        for label in self.on:
            self.switches[label].begin_backward(losses)

    def end_backward(self) -> None:
        """A backward pass has ended, and nobody has touched the gradients yet."""
        for label in self.on:
            self.switches[label].end_backward(self.parts)

    def go(self, way: Way) -> None:
        """Run in this way from now on; a switch that cannot take effect is taken back."""
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
        self.notes.append(f"{', '.join(labels)} taken back: {why}")
        logger.info("%s", self.notes[-1])

    def find_obstacles(self, switches: Iterable[Switch]) -> None:
        """Note why this loop cannot have some switches, while they are off."""
        for switch in switches:
            self.obstacles.pop(switch.label, None)
            if why := switch.obstacle(self.parts):
                self.obstacles[switch.label] = why

    def structure_now(self) -> tuple[Any, ...]:
        """The identity of every weight, and the sizes of the optimizers' groups."""
        weights = [tuple(map(id, model.parameters())) for model in self.parts.models]
        groups = [
            tuple(len(group["params"]) for group in optimizer.param_groups)
            for optimizer in self.parts.optimizers
        ]
        return (*weights, *groups)
