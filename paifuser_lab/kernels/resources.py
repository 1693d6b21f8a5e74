"""An entry's registers and spills, from the assembler's log, and the time to issue its
instructions.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from ..errors import KernelError

ISSUED_PER_CYCLE = 4  # instructions per cycle of a multiprocessor, one by each warp scheduler


class Resources(BaseModel):
    """Registers, spills and stack of one entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    registers: int
    spill_bytes: int
    stack_bytes: int


def resources_in(log: str, entry: str) -> Resources:
    """Parse the assembler's lines about an entry in NVRTC's log (`--ptxas-options=-v`)."""
    match = re.search(
        rf"'{re.escape(entry)}'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes "
        r"spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    if match is None:
        raise KernelError(
            f"NVRTC's log has no resources of {entry}; is this version of NVRTC supported?"
        )
    stack, stores, loads, registers = (int(text) for text in match.groups())
    return Resources(registers=registers, spill_bytes=stores + loads, stack_bytes=stack)


def issue_bound_ns(
    instructions: int, warps: int, *, multiprocessors: int, clock_ghz: float
) -> float:
    """The time of one block, averaged over a full GPU, if only issuing instructions took time.

    An estimate, not yet compared with a measurement: every instruction counted once, no stalls,
    every issue slot used.
    """
    return instructions * warps / (multiprocessors * ISSUED_PER_CYCLE * clock_ghz)
