"""The section of the machine: its instruction sets and its measured ceilings."""

from __future__ import annotations

from functools import cache

from ...machine import hardware
from ...records import Hardware
from ..section import chart_section


@cache
def _machine() -> Hardware:
    return hardware()


SECTION = chart_section(
    "hardware",
    Hardware,
    "hardware",
    before="What can this machine do? Its ceilings are measured in a few seconds.",
    title="This machine",
    tab="machine",
    place="beside",
    # measured by then: a session profiles its model first
    sources=lambda state: (_machine() if state.baseline is not None else None,),
)
