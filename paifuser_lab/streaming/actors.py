"""Workers that are actors of Ray, on this machine or on a cluster.

Groups go to plain actors, two in flight each, and Ray owns machines, transport and placement. A
dead actor is replaced wherever there are resources; a machine that comes gets one when the number
of workers is not fixed. Ray's callbacks run on the thread that carries its messages, where a call
of Ray would wait for itself, so they only put events into the inbox.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import StreamError, first_line
from ..machine.cluster import LOCAL, connect, ray_module
from .pool import ATTEMPTS, JOIN_S, Answered, Asked, Inbox, Joined, Lost, Returned, default_workers
from .source import Group
from .stage import FrameError, Stage
from .worker import Answer, Worker

RETRY_S = 0.2
DEFAULTS = {"num_cpus": 1.0, "scheduling_strategy": "SPREAD"}
LOST = (  # what an answer is when its actor, or the machine that held it, is gone
    "RayActorError",
    "NodeDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "WorkerCrashedError",
)


class _Actor(Worker):
    """The worker in an actor."""

    def begin(self) -> str:
        """Open the stages; returns the machine's address."""
        self.open()
        address: str = ray_module().util.get_node_ip_address()
        return f"{address}, process {os.getpid()}"


class ActorPool:
    """One actor a worker. With `workers=None` one on each machine, also on those that come later;
    on a cluster that this stream starts, as many as there would be threads.

    `options` are those of a Ray actor: num_cpus, num_gpus, resources …
    """

    def __init__(
        self,
        inbox: Inbox,
        stages: Sequence[Stage],
        workers: int | None = None,
        *,
        address: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        ray = ray_module()
        self._options = {**DEFAULTS, "max_restarts": 0, **(options or {})}
        self._is_ours = connect(address, cpus=workers)
        if workers is None and self._is_ours and address in LOCAL:
            workers = default_workers()
        self._inbox, self._stages, self._count = inbox, list(stages), workers
        self._class = ray.remote(_Actor)
        self._numbers = itertools.count()
        self._actors: dict[str, Any] = {}
        self._leaving: list[Any] = []
        self._machines: set[str] = set()
        self._lock = threading.Lock()
        self._starting: set[str] = set()
        self._deaths = 0
        self._is_closed = False

    @property
    def starting(self) -> int:
        return len(self._starting)

    def start(self) -> None:
        self.look()
        for _ in range(self._count or 0):
            self.add()

    def add(self) -> None:
        name = f"actor-{next(self._numbers)}"
        try:
            actor = self._class.options(**self._options).remote(self._stages)
        except Exception as error:
            raise StreamError(
                f"The stages cannot be sent to a worker: {first_line(error)}; load what cannot be "
                "pickled in `open`."
            ) from error
        with self._lock:
            self._actors[name] = actor
            self._starting.add(name)
        actor.begin.remote().future().add_done_callback(partial(self._opened, name))

    def send(self, node: str, group: Group, offsets: tuple[int, ...] | None) -> None:
        if (actor := self._actors.get(node)) is None:
            return
        try:
            future = actor.process.remote(group, offsets).future()
        except Exception as error:
            raise StreamError(
                f"Group {group.sequence} cannot be sent to a worker: {first_line(error)}; if the "
                "object store is full, make the groups or the window smaller."
            ) from error
        future.add_done_callback(partial(self._answered, node, group, offsets))

    def kill(self, node: str) -> None:
        with self._lock:
            actor = self._actors.pop(node, None)
        if actor is not None:
            ray_module().kill(actor)
            self.add()

    def remove(self, node: str) -> None:
        """Close the stages of an actor that holds nothing, then end it."""
        with self._lock:
            actor = self._actors.pop(node, None)
        if actor is not None:
            self._leaving.append(actor)
            end = Asked(partial(ray_module().kill, actor))
            actor.close.remote().future().add_done_callback(lambda _: self._inbox.put(end))

    def look(self) -> None:
        if self._count is not None:
            return
        machines = {node["NodeID"] for node in ray_module().nodes() if node["Alive"]}
        for _ in machines - self._machines:
            self.add()
        self._machines = machines

    def missing(self) -> str:
        ray = ray_module()
        free, total = ray.available_resources(), ray.cluster_resources()
        needs = {"CPU": self._options.get("num_cpus"), "GPU": self._options.get("num_gpus")}
        needs |= self._options.get("resources") or {}
        words = [
            f"{count:g} {name} a worker ({free.get(name, 0):g} of {total.get(name, 0):g} free)"
            for name, count in needs.items()
            if count
        ]
        return " and ".join(words) or "its actors to open"

    def close(self) -> None:
        """Close the stages of actors that still answer, then end all of them."""
        ray = ray_module()
        with self._lock:
            self._is_closed = True
            actors = [*self._actors.values(), *self._leaving]
            opened = [actor for name, actor in self._actors.items() if name not in self._starting]
            self._actors.clear()
        try:
            if closing := [actor.close.remote() for actor in opened]:
                ray.wait(closing, num_returns=len(closing), timeout=JOIN_S)
            for actor in actors:
                ray.kill(actor)
        finally:
            if self._is_ours:
                ray.shutdown()

    def _opened(self, name: str, future: Any) -> None:
        value = _value(future)
        if not isinstance(value, str):
            self._lose(name, _reason(value), may_replace=_is_lost(value))
        elif name in self._actors:
            self._inbox.put(Joined(name, value))
        with self._lock:
            self._starting.discard(name)

    def _answered(
        self, name: str, group: Group, offsets: tuple[int, ...] | None, future: Any
    ) -> None:
        if self._is_closed:
            return
        value = _value(future)
        if isinstance(value, Answer):
            self._deaths = 0
            self._inbox.put(Answered(name, group.sequence, offsets, value))
        elif isinstance(value, ray_module().exceptions.ActorUnavailableError):
            event = Returned(name, group.sequence)
            threading.Timer(RETRY_S, self._inbox.put, (event,)).start()
        elif _is_lost(value):
            self._lose(name, _reason(value), may_replace=True)
        else:
            count = group.count if offsets is None else len(offsets)
            failed = FrameError("worker", _reason(value))
            self._inbox.put(Answered(name, group.sequence, offsets, Answer((failed,) * count)))

    def _lose(self, name: str, reason: str, *, may_replace: bool) -> None:
        """Announce a dead actor once, and start another unless many in a row died."""
        with self._lock:
            if self._is_closed or (actor := self._actors.pop(name, None)) is None:
                return
            self._deaths += 1
            limit = ATTEMPTS * max(self._count or len(self._machines), 1)
        # it may be alive and only its answer lost, or its stages cannot open
        self._inbox.put(Asked(partial(ray_module().kill, actor)))
        if may_replace and self._deaths <= limit:
            self._inbox.put(Asked(self.add))
        self._inbox.put(Lost(name, reason))


def _value(future: Any) -> Any:
    """What a call gave, or its error; what a dead process was to make can arrive as either."""
    error = future.exception()
    return error if error is not None else future.result()


def _is_lost(value: Any) -> bool:
    exceptions = ray_module().exceptions
    return isinstance(value, tuple(getattr(exceptions, kind) for kind in LOST))


def _reason(error: Any) -> str:
    """The first line of what happened; of an error in an actor, that of its cause."""
    cause = getattr(error, "cause", None)
    return first_line(cause if isinstance(cause, BaseException) else error)
