"""Freed memory of the CPU kept for the next request while the loop runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ...memory.pools import heap_obstacle, memory_pool
from .base import Parts, Switch


class MemoryPool(Switch):
    """`lab.memory_pool()` around the loop; a GPU's allocator is a pool by itself."""

    name = feature = "memory_pool"
    is_of_calls = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.held = ExitStack()

    def obstacle(self, parts: Parts) -> str:
        if parts.device.type != "cpu":
            return f"torch's allocator on {parts.device.type} is a pool already"
        return heap_obstacle()

    def turn_on(self, parts: Parts) -> None:
        self.held.enter_context(memory_pool(self.options.get("limit"), name="training").held())

    def turn_off(self, parts: Parts) -> None:
        self.held.close()
