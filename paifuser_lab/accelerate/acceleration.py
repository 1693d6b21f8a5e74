"""The acceleration in force as its user holds it: switches are added, removed and looked at."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import AccelerationError
from ..model.watch import is_in_backward
from ..records import AccelerationStatus, SwitchState, SwitchStatus
from .loop import Loop
from .meter import Meter
from .switches import SWITCHES, Switch

logger = logging.getLogger("paifuser_lab.accelerate")
FOLLOWED_EVERY_S = 0.5


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
        self.yields = False  # to another lab.enable(), which takes its place
        self._contexts: list[str] = []  # the feature that each `with` block is for
        self._last = AccelerationStatus(is_enabled=False)
        self._followers: list[Callable[[AccelerationStatus], None]] = []
        self._told_at = -math.inf

    @property
    def is_on(self) -> bool:
        return self.loop.watcher.is_on

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
        self.loop.count_passed()  # before a loop at rest is woken
        self.loop.add(list(new.values()))
        if not self.is_on:
            self.loop.watcher.start()
        self.loop.watch_what_is_needed()

    def remove(self, name: str) -> None:
        """Turn a switch off and restore what it changed."""
        check_not_in_backward()
        for feature, names in list(self.features.items()):
            names.discard(name)
            if not names:
                del self.features[feature]
        self.options["switches"].discard(name)
        self.loop.count_passed()
        self.loop.remove(name)
        self.loop.watch_what_is_needed()

    def stop(self) -> None:
        """Restore everything: calls, weights, optimizers, hooks and settings."""
        if not self.is_on:
            return
        check_not_in_backward()
        self._last = self.status()
        self.loop.end()
        self._tell_followers(is_last=True)
        self._followers.clear()
        logger.info("off: %s", self._last.title)

    def status(self) -> AccelerationStatus:
        """Every switch as it is now, with the measurement that decided it."""
        if not self.is_on:
            return self._last.model_copy(update={"is_enabled": False})
        self.loop.count_passed()
        loop, judge = self.loop, self.loop.judging.judge
        unknown = [f"{name} is left alone: its state is not known" for name in loop.parts.unknown]
        return AccelerationStatus(
            is_enabled=True,
            model=", ".join(type(model).__name__ for model in loop.parts.models),
            optimizer=", ".join(type(optimizer).__name__ for optimizer in loop.parts.optimizers),
            device=loop.parts.device.type,
            steps=loop.steps,
            judged_steps=judge.judged_steps,
            judging_share=judge.share(loop.steps),
            clock="wall" if loop.judging.is_wall else "cpu",
            rows=tuple(_row_of(loop, label, switch) for label, switch in loop.switches.items()),
            notes=(*unknown, *loop.notes),
        )

    def follow(self, show: Callable[[AccelerationStatus], None]) -> None:
        """Call `show` with the status every half second and at the end, outside of the steps."""
        if self.is_on:
            self._followers.append(show)
            self.loop.judging.between_steps = self._tell_followers

    def _tell_followers(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if not is_last and now - self._told_at < FOLLOWED_EVERY_S:
            return
        status = self.status()
        for show in self._followers:
            show(status)
        self._told_at = time.monotonic()

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
    if is_in_backward():
        raise AccelerationError(
            "Acceleration cannot change inside a running backward pass; call it between two steps."
        )


def _row_of(loop: Loop, label: str, switch: Switch) -> SwitchStatus:
    """A switch as it is now, with the measurement that decided it."""
    state, why = _state(loop, label, switch)
    verdict = loop.judging.judge.verdicts.get(label)
    if verdict is None:
        return SwitchStatus(name=label, state=state, why=why)
    return SwitchStatus(
        name=label,
        state=state,
        why=why,
        ratio=verdict.ratio,
        interval=verdict.interval,
        without_steps_per_s=1 / verdict.without_s if verdict.without_s else None,
        with_steps_per_s=1 / verdict.with_s if verdict.with_s else None,
        without_bytes=verdict.without_bytes,
        with_bytes=verdict.with_bytes,
    )


def _state(loop: Loop, label: str, switch: Switch) -> tuple[SwitchState, str]:
    """Whether it is in force, and why."""
    if label in loop.obstacles:
        return "not offered", loop.obstacles[label]
    if loop.stopped:
        return "taken back", loop.stopped
    if not switch.is_judged:
        return ("on" if label in loop.on else "waiting"), switch.why()
    if not loop.judging.has_begun:
        return "waiting", ""
    judge = loop.judging.judge
    later = f"judging goes on at step {judge.goes_on_at:,}" if loop.judging.is_waiting else ""
    if label in judge.names_waiting:
        before = judge.verdicts.get(label)
        again = f"{before.why}; it is tried again" if before is not None else ""
        return "waiting", "; ".join(filter(None, (again, later)))
    race = judge.race
    is_racing = race is not None and any(
        label in way - race.reference for way in race.ways if way not in race.dropped
    )
    if is_racing:
        return ("on" if label in loop.on and later else "judging"), later
    verdict = judge.verdicts.get(label)
    if verdict is None:
        return "waiting", "" if label in judge.offers else switch.why()
    extra = f"; {switch.why()}" if verdict.is_kept and switch.why() else ""
    return ("on" if verdict.is_kept else "taken back"), verdict.why + extra
