"""The number of threads that torch computes with: one, or one a core."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ...machine import thread_choices
from ...machine.host import core_use, others_share
from ...records.quality import MAX_OTHERS
from .base import Parts, Switch

SHORTEST_S = 0.2  # the system counts CPU time in hundredths of a second


class Threads(Switch):
    """The other of the two numbers of threads that suit this machine.

    Threads wait for each other many times in a step: where one has no core, a step takes many times
    longer, so that more threads are not even tried beside busy neighbours.
    """

    name = "threads"
    is_of_calls = False
    needs_wall = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.before = torch.get_num_threads()
        others = [count for count in thread_choices() if count != self.before]
        self.count = max(others, default=self.before)
        self._use = core_use()

    @property
    def label(self) -> str:
        return f"threads={self.count}"

    def obstacle(self, parts: Parts) -> str:
        if parts.device.type != "cpu":
            return f"the model runs on {parts.device.type}"
        if "OMP_NUM_THREADS" in os.environ:
            return "OMP_NUM_THREADS sets the number of threads"
        if self.count == self.before:
            return "there is one sensible number of threads on this machine"
        if self.count > self.before and (share := self._others_share()) > MAX_OTHERS:
            return f"other processes use {share:.0%} of the cores"
        return "a compiled part would compile anew" if parts.is_compiled else ""

    def _others_share(self) -> float:
        """The share of the cores' time that others have used since this switch was made."""
        now = core_use()
        return others_share(self._use, now) if now.wall_s - self._use.wall_s > SHORTEST_S else 0.0

    def turn_on(self, parts: Parts) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(self.count)

    def turn_off(self, parts: Parts) -> None:
        torch.set_num_threads(self.before)
