"""The acceleration in force: it is told of the loop's steps, and its switches can be added, removed
and looked at.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from torch import Tensor
from torch.optim import Optimizer

from ..errors import AccelerationError
from ..records import AccelerationStatus
from .calls import origin_of_nan
from .loop import Loop
from .meter import Meter
from .race import Way
from .rows import row_of
from .switches import SWITCHES
from .switches.base import is_in_backward
from .watcher import Watcher, has_autocast

logger = logging.getLogger("paifuser_lab.accelerate")
MOST_STRAY_STEPS = 8  # of another optimizer without one of the leader: another loop has begun
MOST_LOSSES = 256  # held unread, as in a loop that updates its weights by hand
MOST_BROKEN = 10  # losses in a row that are not finite
FOLLOWED_EVERY_S = 0.5
READ_EVERY = 10  # steps on a GPU, where reading a loss waits for it


class Acceleration:
    """Switches in force around a training loop; as a context it ends those that it was given.

    with lab.enable() as acceleration:
        for images, labels in batches:  # the loop as it is
            ...
    acceleration.status()
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self.features: dict[str, set[str]] = {}  # which switches each was asked for
        self.options: dict[str, Any] = {"switches": set()}
        self.loop = Loop(meter or Meter())
        self.watcher = Watcher(self)
        self.is_on = False
        self.yields = False  # to another lab.enable(), which takes its place
        self._contexts: list[str] = []  # the feature that each `with` block is for
        self._losses: deque[Tensor] = deque(maxlen=MOST_LOSSES)
        self._late = 0  # how many of them a step has been taken with
        self._is_late = False  # the first of this step that is not finite
        self._read: list[float] = []  # losses of this step
        self._strangers: WeakSet[Optimizer] = WeakSet()
        self._skips = False  # the steps that follow this backward pass
        self._stray_steps = self._broken = self._restarts = 0
        self._state_watched: tuple[bool, Way, Way] | None = None
        self._last: AccelerationStatus | None = None
        self._followers: list[Callable[[AccelerationStatus], None]] = []
        self._told_at = -math.inf

    def add(self, feature: str, names: set[str], options: Mapping[str, Any]) -> None:
        """Turn a feature's switches on; those that another one has turned on stay."""
        check_not_in_backward()
        if feature in self.features:
            raise AccelerationError(
                f"{feature}() is in force already; call lab.disable() first, or leave it as it is."
            )
        settings = {**self.options, **options, "switches": self.options["switches"] | names}
        new = {
            name: SWITCHES[name](settings)
            for name in names
            if all(name not in others for others in self.features.values())
        }
        self.options.update(settings)
        for switch in new.values():
            switch.options = self.options
        self.features[feature] = names
        self._count_passed()
        self.loop.add(list(new.values()))
        if not self.is_on:
            self.watcher.start()
            self.is_on = True
        self._watch()

    def remove(self, name: str) -> None:
        """Turn a switch off and restore what it changed."""
        check_not_in_backward()
        for feature, names in list(self.features.items()):
            names.discard(name)
            if not names:
                del self.features[feature]
        self.options["switches"].discard(name)
        self._count_passed()
        self.loop.remove(name)
        self._watch()

    def stop(self) -> None:
        """Restore everything: calls, weights, optimizers, hooks and settings."""
        if not self.is_on:
            return
        check_not_in_backward()
        self._last = self.status()
        self.loop.leave()
        self.watcher.stop()
        self._losses.clear()
        self._strangers.clear()
        self._state_watched = None
        self.is_on = False
        self._tell_followers(is_last=True)
        self._followers.clear()
        logger.info("off: %s", self._last.title)

    def status(self) -> AccelerationStatus:
        """Every switch as it is now, with the measurement that decided it."""
        if not self.is_on:
            last = self._last
            return (
                AccelerationStatus(is_enabled=False)
                if last is None
                else last.model_copy(update={"is_enabled": False})
            )
        self._count_passed()
        loop, judge = self.loop, self.loop.judge
        unknown = [f"{name} is left alone: its state is not known" for name in loop.parts.unknown]
        return AccelerationStatus(
            is_enabled=True,
            model=", ".join(type(model).__name__ for model in loop.parts.models),
            optimizer=", ".join(type(optimizer).__name__ for optimizer in loop.parts.optimizers),
            device=loop.parts.device.type,
            steps=loop.steps,
            judged_steps=judge.judged_steps if judge else 0,
            judging_share=judge.share(loop.steps) if judge else None,
            clock="wall" if loop.is_wall else "cpu",
            rows=tuple(row_of(loop, label, switch) for label, switch in loop.switches.items()),
            notes=(*unknown, *loop.notes),
        )

    def follow(self, show: Callable[[AccelerationStatus], None]) -> None:
        """Call `show` with the status after steps of the loop, half a second apart, and at its end;
        the time that it takes is not counted as a step's.
        """
        if self.is_on:
            self._followers.append(show)
            self.loop.between_steps = self._tell_followers

    def _tell_followers(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if not is_last and now - self._told_at < FOLLOWED_EVERY_S:
            return
        status = self.status()
        for show in self._followers:
            show(status)
        self._told_at = time.monotonic()

    # What the watcher tells.

    def note_loss(self, loss: Tensor) -> None:
        """A backward pass begins from a loss."""
        self._losses.append(loss)
        self._skips = False

    def begin_backward(self, losses: Sequence[Tensor]) -> None:
        """It begins from all of these."""
        self.loop.begin_backward(losses)

    def end_backward(self) -> None:
        """It has ended."""
        self.loop.end_backward()

    def before_step(self, optimizer: Optimizer, *, has_closure: bool = False) -> bool:
        """An optimizer is about to step; False skips the step."""
        if self._losses:
            is_cpu = self.loop.parts.device.type == "cpu"
            if is_cpu or self.loop.steps % READ_EVERY == 0:
                self._read_losses()
        if optimizer not in self.loop.parts.optimizers:
            return True
        if has_closure and not self.loop.parts.has_closure:
            self.loop.parts.has_closure = True
            self.loop.reconsider()
        if bad := [loss for loss in self._read if not math.isfinite(loss)]:
            self._skips |= self.loop.take_back_inexact(bad[0], is_in_time=not self._is_late)
        return not self._skips and self.loop.before_step(optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        loop = self.loop
        self._count_passed()
        if optimizer not in loop.parts.optimizers:
            self._meet(optimizer)
            return
        loop.after_step(optimizer)
        if optimizer is not loop.leader:
            self._stray_steps += 1
            if self._stray_steps > MOST_STRAY_STEPS:
                self._begin_again("another loop has begun")
            return
        self._stray_steps = 0
        if loop.is_changed():
            self._begin_again("the model or the optimizer has changed its structure")
            return
        if self.watcher.is_searching and not self._strangers:
            self.watcher.end_search()
        losses, self._read = self._read, []
        self._late = len(self._losses)
        loop.end_step([sum(losses) / len(losses)] if losses else [])
        self._watch()

    def _count_passed(self) -> None:
        """Count the steps of a loop at rest that the watcher has not told of."""
        self.loop.steps += self.watcher.take_passed(self.loop.leader)

    def _read_losses(self) -> None:
        losses = [float(loss) for loss in self._losses]
        self._is_late = not all(map(math.isfinite, losses[: self._late]))
        self._losses.clear()
        self._late = 0
        self._read += losses
        self._watch_finite(losses)

    def _watch(self) -> None:
        """Watch of the loop what it needs now, and nothing else: each step pays for it."""
        loop = self.loop
        state = (loop.is_at_rest, loop.on, loop.lately)
        if state == self._state_watched or not self.is_on:
            return
        self._state_watched = state
        watched = loop.watched
        self.watcher.watch(steps=watched.steps, losses=watched.losses)
        self.watcher.pass_over(() if any(watched) else loop.parts.optimizers)
        loop.place_calls(watched.calls)

    def _meet(self, optimizer: Optimizer) -> None:
        """An optimizer that is not known: its models are known once it steps during a search."""
        if not self.watcher.is_searching:
            self.watcher.search()
            self._strangers.add(optimizer)
            return
        self._strangers.discard(optimizer)
        models = self.watcher.models_of(optimizer)
        self.loop.join(optimizer, models, autocast=self.watcher.has_autocast or has_autocast())
        self._read = []
        self._watch()

    def _begin_again(self, why: str) -> None:
        self.loop.leave()
        self._restarts += 1
        count = f", {self._restarts} times by now" if self._restarts > 1 else ""
        note = f"judged anew from step {self.loop.steps}{count}: {why}"
        self.loop.note(note, subject=f"judged anew: {why}")
        self._stray_steps = 0
        self.watcher.search()
        self._watch()

    def _watch_finite(self, losses: list[float]) -> None:
        """Name the layer where a NaN began, once; stop after too many of them."""
        if all(map(math.isfinite, losses)):
            self._broken = 0
            return
        self._broken += 1
        if self._broken == 1:
            loop = self.loop
            bad = next(loss for loss in losses if not math.isfinite(loss))
            origin = origin_of_nan(loop.calls.values(), loop.calls_of_copies(loop.on))
            loop.note(f"the loss is {bad}; {origin}")
            logger.warning("the loss is %s; %s", bad, origin)
        if self._broken == MOST_BROKEN:
            self.loop.stop(f"the loss has not been finite for {MOST_BROKEN} steps")

    def __enter__(self) -> Acceleration:
        self._contexts.append(next(reversed(self.features), ""))
        return self

    def __exit__(self, *error: object) -> None:
        """End the feature that the `with` statement enabled; with the last one, everything."""
        names = self.features.pop(self._contexts.pop(), set())
        if not self.features:
            self.stop()
        for name in names.difference(*self.features.values()) if self.is_on else ():
            self.remove(name)

    def __str__(self) -> str:
        return str(self.status())

    def __repr__(self) -> str:
        return f"Acceleration({self.status().title})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def check_not_in_backward() -> None:
    """Raise inside a running backward pass."""
    if is_in_backward():
        raise AccelerationError(
            "Acceleration cannot change inside a running backward pass; call it between two steps."
        )
