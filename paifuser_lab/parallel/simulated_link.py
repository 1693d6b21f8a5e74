"""Exchanges over a link slower than the one there is.

The exchanges of torch.distributed's Python functions by which tensors are averaged, gathered,
scattered or sent pass here while `simulated_link` is in force; a barrier does not, nor what DDP
exchanges in C++ where it has no hook, or DTensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..model.tensors import tensors_in
from ..records import Link


class Rule(NamedTuple):
    """How a kind of exchange moves its tensors around a ring."""

    passes: int  # around the ring; 0 is one message to another process
    argument: int  # the position of the tensors that the whole ring shares


# The methods of a process group by which torch.distributed's functions exchange.
RULES = {
    "allreduce": Rule(2, 0),
    "allreduce_coalesced": Rule(2, 0),
    "broadcast": Rule(1, 0),
    "reduce": Rule(1, 0),
    "allgather": Rule(1, 0),
    "_allgather_base": Rule(1, 0),
    "all_gather_single": Rule(1, 0),
    "reduce_scatter": Rule(1, 1),
    "_reduce_scatter_base": Rule(1, 1),
    "reduce_scatter_single": Rule(1, 1),
    "all_to_all_single": Rule(1, 1),
    "send": Rule(0, 0),
}


class LinkUse:
    """The slower link: how long it has been in use, and until when it is."""

    def __init__(self, link: Link) -> None:
        self.link, self.link_s, self._free_at = link, 0.0, 0.0

    def over_at(self, name: str, tensors: Any, world: int) -> float:
        """When an exchange that begins now is over."""
        passes = RULES[name].passes
        size = sum(tensor.nbytes for tensor in tensors_in(tensors))
        seconds = self.link.ring_s(size, world, passes) if passes else self.link.transfer_s(size)
        self.link_s += seconds
        self._free_at = max(time.perf_counter(), self._free_at) + seconds
        return self._free_at


class _Delayed:
    """An exchange in progress that is over when it is, and not before a moment."""

    def __init__(self, work: Any, over_at: float) -> None:
        self._work, self._over_at = work, over_at

    def _sleep(self) -> None:
        time.sleep(max(0.0, self._over_at - time.perf_counter()))

    def wait(self, *args: Any) -> Any:
        """Wait until both are over."""
        result = self._work.wait(*args)
        self._sleep()
        return result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is complete when both are over."""

        def late(future: torch.futures.Future[Any]) -> Any:
            self._sleep()
            return future.value()

        future: torch.futures.Future[Any] = self._work.get_future().then(late)
        return future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


@contextmanager
def simulated_link(link: Link) -> Iterator[LinkUse]:
    """Each exchange takes the link's time in addition, one by one, while computing goes on."""
    use = LinkUse(link)
    # As they stand in the class: what getattr gives would not be bound to a group again.
    kept = {name: vars(dist.ProcessGroup)[name] for name in RULES}

    def delayed(name: str, exchange: Callable[..., Any]) -> Callable[..., Any]:
        def call(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            over_at = use.over_at(name, args[RULES[name].argument], group.size())
            return _Delayed(exchange(group, *args, **kwargs), over_at)

        return call

    for name in RULES:
        setattr(dist.ProcessGroup, name, delayed(name, getattr(dist.ProcessGroup, name)))
    try:
        yield use
    finally:
        for name, exchange in kept.items():
            setattr(dist.ProcessGroup, name, exchange)
