"""Where the candidates of a search are measured: in this process, or on the machines of a Ray
cluster. Processes of one machine would disturb each other's timing, so each machine measures one.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from ..errors import MeasureError, ShouldStop
from ..machine import machine_label
from ..machine.cluster import connect, ray_module
from .screening import Screen, Screened
from .space import Change

JOIN_S = 60.0  # for a machine to begin


@dataclass
class Here:
    """This process, whose stopping is the search's."""

    screen: Screen
    should_stop: ShouldStop
    count: ClassVar[int] = 1  # how many candidates are measured at once

    def begin(
        self, change: Change, predicted: float, seconds: float, left: float
    ) -> Future[Screened | None]:
        """Measure a candidate in so many seconds, at once; None if it was not measured."""
        done: Future[Screened | None] = Future()
        done.set_result(self.screen.screened(change, predicted, seconds, self.should_stop))
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return


class RayNodes:
    """The machines of a cluster that have this machine's kind of processor: others measure what
    does not hold here. An actor on each takes all of its cores. Machines may come and go.
    """

    def __init__(self, address: str, screen: Screen) -> None:
        self.ray = ray_module("workers=")
        self.address, self.screen = address, screen
        self.known: set[str] = set()  # nodes that have or had an actor
        self.others: set[str] = set()  # kinds of processors that are left out
        self.coming: dict[Any, Any] = {}  # the kind that an actor will tell, and the actor
        self.actors: list[Any] = []
        self.idle: list[Any] = []

    @property
    def count(self) -> int:
        return len(self.actors)

    def __enter__(self) -> Self:
        self.is_own = connect(self.address)
        try:
            self.work = self.ray.put(self.screen)
            self._join(JOIN_S)
            self._check_any()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for actor in (*self.actors, *self.coming.values()):
            self.ray.kill(actor)
        self.actors.clear()
        if self.is_own:
            self.ray.shutdown()

    def begin(
        self, change: Change, predicted: float, seconds: float, left: float
    ) -> Future[Screened | None]:
        """Measure on a machine that is idle, which ends all of it in the seconds that are left."""
        self._join(0)
        self._check_any()
        actor, done = self.idle.pop(), Future[Screened | None]()
        result = actor.screened.remote(change, predicted, seconds, left)
        result.future().add_done_callback(partial(self._take, actor, done))
        return done

    def _take(self, actor: Any, done: Future[Screened | None], result: Future[Any]) -> None:
        error = result.exception()
        if isinstance(error, self.ray.exceptions.RayActorError):  # its machine left
            if actor in self.actors:
                self.actors.remove(actor)
            done.set_result(None)
        elif error is not None:
            done.set_exception(error)
        else:
            self.idle.append(actor)
            done.set_result(result.result())

    def _join(self, timeout_s: float) -> None:
        """Start an actor on each machine that is new, and take those that have begun."""
        ray, on = self.ray, self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for node in ray.nodes():
            cores, name = node["Resources"].get("CPU", 0), node["NodeID"]
            if node["Alive"] and cores and name not in self.known:
                self.known.add(name)
                made = ray.remote(num_cpus=cores, scheduling_strategy=on(name, soft=False))(_Actor)
                actor = made.remote(self.work)
                self.coming[actor.kind.remote()] = actor
        waiting = list(self.coming)
        begun, _ = (
            ray.wait(waiting, num_returns=len(waiting), timeout=timeout_s) if waiting else ([], [])
        )
        for answer in begun:
            actor = self.coming.pop(answer)
            try:
                kind = ray.get(answer)
            except ray.exceptions.RayActorError:  # it left again
                continue
            if kind == machine_label():
                self.actors.append(actor)
                self.idle.append(actor)
            else:
                self.others.add(kind)
                ray.kill(actor)

    def _check_any(self) -> None:
        if not self.actors:
            others = f"; there are {', '.join(sorted(self.others))}" if self.others else ""
            raise MeasureError(
                f"no machine of the Ray cluster at {self.address!r} is free, has this package and "
                f"this one's processor ({machine_label()}){others}; add one, or leave workers out."
            )


class _Actor:
    """What measures on a machine."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def kind(self) -> str:
        """The kind of processor."""
        return machine_label()

    def screened(
        self, change: Change, predicted: float, seconds: float, left: float
    ) -> Screened | None:
        """A candidate, without its model."""
        end = time.monotonic() + left
        done = self.screen.screened(change, predicted, seconds, lambda: time.monotonic() > end)
        return done and done._replace(variant=None)
