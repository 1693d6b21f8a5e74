"""The number of threads that torch computes with: one, or one a core."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ...machine import thread_choices
from .base import Parts, Switch


class Threads(Switch):
    """The other of the two numbers of threads that suit this machine."""

    name = "threads"

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.before = torch.get_num_threads()
        others = [count for count in thread_choices() if count != self.before]
        self.count = max(others, default=self.before)

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
        return "a compiled part would compile anew" if parts.is_compiled else ""

    def turn_on(self, parts: Parts) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(self.count)

    def turn_off(self, parts: Parts) -> None:
        torch.set_num_threads(self.before)
