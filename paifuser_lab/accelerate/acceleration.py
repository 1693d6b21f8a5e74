"""The acceleration in force: it is told of the loop's steps, and its switches can be added, removed
and looked at.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import AccelerationError
from ..model.watch import describe, first_nan
from ..records import AccelerationStatus, SwitchState, SwitchStatus
from .loop import Loop
from .meter import Meter
from .race import Verdict
from .switches import SWITCHES, Switch
from .watcher import Watcher, has_autocast, is_in_backward

logger = logging.getLogger("paifuser_lab.accelerate")
MOST_STRAY_STEPS = 8  # of another optimizer without one of the leader: another loop has begun
MOST_BROKEN = 10  # losses in a row that are not finite
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
        self.loop = Loop([], meter or Meter())
        self.watcher = Watcher(self)
        self.is_on = False
        self._contexts: list[str] = []  # the feature that each `with` block is for
        self._losses: list[Tensor] = []
        self._read: list[float] = []  # losses of this step
        self._strangers: set[Optimizer] = set()
        self._skips = False  # the steps that follow this backward pass
        self._stray_steps = self._broken = 0
        self._last: AccelerationStatus | None = None

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
        self.loop.add(list(new.values()))
        if not self.is_on:
            self.watcher.start()
            self.is_on = True

    def remove(self, name: str) -> None:
        """Turn a switch off and restore what it changed."""
        check_not_in_backward()
        for feature, names in list(self.features.items()):
            names.discard(name)
            if not names:
                del self.features[feature]
        self.options["switches"].discard(name)
        self.loop.remove(name)

    def stop(self) -> None:
        """Restore everything: calls, weights, optimizers, hooks and settings."""
        if not self.is_on:
            return
        check_not_in_backward()
        self._last = self.status()
        self.loop.leave()
        self.watcher.stop()
        self.is_on = False
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
            rows=tuple(self._row(label, switch) for label, switch in loop.switches.items()),
            notes=(*unknown, *loop.notes),
        )

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
        is_cpu = self.loop.parts.device.type == "cpu"
        if self._losses and (is_cpu or self.loop.steps % READ_EVERY == 0):
            losses, self._losses = [float(loss) for loss in self._losses], []
            self._read += losses
            self._watch_finite(losses)
        if optimizer not in self.loop.parts.optimizers:
            return True
        if has_closure and not self.loop.parts.has_closure:
            self.loop.parts.has_closure = True
            self.loop.reconsider()
        if bad := [loss for loss in self._read if not math.isfinite(loss)]:
            self._skips |= self.loop.take_back_inexact(bad[0])
        return not self._skips and self.loop.before_step(optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        loop = self.loop
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
        if not self._strangers:
            self.watcher.end_search()
        losses, self._read = self._read, []
        loop.end_step([sum(losses) / len(losses)] if losses else [])

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

    def _begin_again(self, why: str) -> None:
        self.loop.leave()
        self.loop.notes.append(f"judged anew from step {self.loop.steps}: {why}")
        self._stray_steps = 0
        self.watcher.search()

    def _watch_finite(self, losses: list[float]) -> None:
        """Name the layer where a NaN began, once; stop after too many of them."""
        if all(map(math.isfinite, losses)):
            self._broken = 0
            return
        self._broken += 1
        if self._broken == 1:
            layers = [_where_nan_begins(call.model, call.last) for call in self.loop.calls.values()]
            named = next((layer for layer in layers if layer), "after the model, in the loss")
            self.loop.notes.append(f"the loss is {losses[-1]}; it began in {named}")
            logger.warning("%s", self.loop.notes[-1])
        if self._broken == MOST_BROKEN:
            self.loop.stop(f"the loss has not been finite for {MOST_BROKEN} steps")

    def _row(self, label: str, switch: Switch) -> SwitchStatus:
        state, why = self._state(label, switch)
        verdict = self.loop.judge.verdicts.get(label) if self.loop.judge else None
        return SwitchStatus(name=label, state=state, why=why, **_figures(verdict))

    def _state(self, label: str, switch: Switch) -> tuple[SwitchState, str]:
        loop = self.loop
        if label in loop.obstacles:
            return "not offered", loop.obstacles[label]
        if loop.stopped:
            return "taken back", loop.stopped
        if not switch.is_judged:
            return ("on" if label in loop.on else "waiting"), switch.why()
        if loop.judge is None:
            return "waiting", ""
        if label in loop.judge.names_waiting:
            before = loop.judge.verdicts.get(label)
            return "waiting", f"{before.why}; it is tried again" if before is not None else ""
        race = loop.judge.race
        is_racing = race is not None and any(
            label in way - race.reference for way in race.ways if way not in race.dropped
        )
        if is_racing:
            return "judging", ""
        verdict = loop.judge.verdicts.get(label)
        if verdict is None:
            return "waiting", "" if label in loop.judge.offers else switch.why()
        extra = f"; {switch.why()}" if verdict.is_kept and switch.why() else ""
        return ("on" if verdict.is_kept else "taken back"), verdict.why + extra

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


def _figures(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {}
    return {
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "without_steps_per_s": 1 / verdict.without_s if verdict.without_s else None,
        "with_steps_per_s": 1 / verdict.with_s if verdict.with_s else None,
        "without_bytes": verdict.without_bytes,
        "with_bytes": verdict.with_bytes,
    }


def _where_nan_begins(model: nn.Module, last: Any) -> str:
    """The layer whose output has the first NaN, in a copy of the model on its last inputs."""
    if last is None:
        return ""
    args, kwargs = last
    try:
        twin = copy.deepcopy(model)
        with torch.random.fork_rng(), torch.no_grad():
            layer = first_nan(twin, lambda: twin(*args, **kwargs))
    except Exception as error:
        return f"a model that cannot be run again ({type(error).__name__})"
    return describe(model, layer) if layer else ""
