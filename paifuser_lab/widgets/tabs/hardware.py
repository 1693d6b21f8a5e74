"""The section of the machine: its instruction sets and its measured ceilings."""

from __future__ import annotations

from functools import cache

from ...machine import hardware
from ...records import Hardware
from ..section import Section


@cache
def _machine() -> Hardware:
    return hardware()


SECTION = Section(
    "hardware",
    record=Hardware,
    title="Hardware",
    is_wide=True,
    sources=lambda state: (_machine(),),
)
