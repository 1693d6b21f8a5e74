"""The registers and spills of an entry, from the assembler's log, and the time of issuing its
instructions.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from ..errors import KernelError

ISSUED_PER_CYCLE = 4  # warps of a multiprocessor that issue an instruction in the same cycle


class Resources(BaseModel):
    """Registers, spills and stack of one entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    registers: int
    spill_bytes: int
    stack_bytes: int


def resources_in(log: str, entry: str) -> Resources:
    """Read the assembler's lines on an entry in NVRTC's log (`--ptxas-options=-v`)."""
    match = re.search(
        rf"'{re.escape(entry)}'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes "
        r"spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    if match is None:
        raise KernelError(
            f"NVRTC's log says nothing about {entry}; is this version of NVRTC known?"
        )
    stack, stores, loads, registers = (int(text) for text in match.groups())
    return Resources(registers=registers, spill_bytes=stores + loads, stack_bytes=stack)


def issue_bound_ns(
    instructions: int, warps: int, *, multiprocessors: int, clock_ghz: float
) -> float:
    """The time of one block, on average over a full GPU, when nothing but issuing instructions
    takes time.

    An inference, not yet compared with a measurement: every instruction counted once, no stall,
    every issue slot used.
    """
    return instructions * warps / (multiprocessors * ISSUED_PER_CYCLE * clock_ghz)
