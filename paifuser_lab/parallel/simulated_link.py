"""What the exchanges of this process cost: their number, bytes and time; and exchanges over a link
slower than the one there is.

The exchanges of torch.distributed's Python functions by which tensors are averaged, gathered,
scattered or sent pass here while `simulated_link` is in force; a barrier does not, nor what DDP
exchanges in C++ where it has no hook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree

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
    """The exchanges of this process so far: how many, bytes sent, and seconds waited for."""

    def __init__(self, link: Link | None, clock: Callable[[], float]) -> None:
        self.link, self.clock = link, clock
        self.calls: dict[str, int] = {}
        self.sent_bytes = 0.0
        self.waited_s = 0.0
        self.link_s = 0.0  # in which the slower link was in use
        self._free_at = 0.0

    def note(self, name: str, tensors: Any, world: int) -> float:
        """Count an exchange, and return when it is over on the slower link."""
        rule = RULES[name]
        size = sum(
            leaf.numel() * leaf.element_size()
            for leaf in pytree.tree_leaves(tensors)
            if isinstance(leaf, Tensor)
        )
        self.calls[name] = self.calls.get(name, 0) + 1
        self.sent_bytes += size * (rule.passes * (world - 1) / world if rule.passes else 1)
        if self.link is None:
            return 0.0
        seconds = (
            self.link.ring_s(size, world, rule.passes)
            if rule.passes
            else self.link.transfer_s(size)
        )
        self.link_s += seconds
        self._free_at = max(self.clock(), self._free_at) + seconds
        return self._free_at


class _Delayed:
    """An exchange in progress that is over when it is, and not before a moment."""

    def __init__(self, work: Any, over_at: float, use: LinkUse) -> None:
        self._work, self._over_at, self._use = work, over_at, use

    def wait(self, *args: Any) -> Any:
        """Wait until both are over."""
        begin = self._use.clock()
        result = self._work.wait(*args)
        _sleep_until(self._over_at, self._use.clock)
        self._use.waited_s += self._use.clock() - begin
        return result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is complete when both are over."""

        def late(future: torch.futures.Future[Any]) -> Any:
            _sleep_until(self._over_at, self._use.clock)
            return future.value()

        future: torch.futures.Future[Any] = self._work.get_future().then(late)
        return future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _sleep_until(moment: float, clock: Callable[[], float]) -> None:
    left = moment - clock()
    if left > 0:
        time.sleep(left)


@contextmanager
def simulated_link(
    link: Link | None = None, *, clock: Callable[[], float] = time.perf_counter
) -> Iterator[LinkUse]:
    """Count what this process exchanges; with a `link`, each exchange takes that link's time in
    addition, one after another, while computing goes on.
    """
    use = LinkUse(link, clock)
    # As they stand in the class: what getattr gives would not be bound to a group again.
    kept = {name: vars(dist.ProcessGroup)[name] for name in RULES}

    def watched(name: str, exchange: Callable[..., Any]) -> Callable[..., Any]:
        def call(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            over_at = use.note(name, args[RULES[name].argument], group.size())
            return _Delayed(exchange(group, *args, **kwargs), over_at, use)

        return call

    for name in RULES:
        setattr(dist.ProcessGroup, name, watched(name, getattr(dist.ProcessGroup, name)))
    try:
        yield use
    finally:
        for name, exchange in kept.items():
            setattr(dist.ProcessGroup, name, exchange)
