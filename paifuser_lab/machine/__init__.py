"""The machine: what it is, what it can do at most, and how many threads run.

`machine` describes it (`lab.hardware()`), `host` reads the system, `ceilings` measures peak rates,
`datasheets` has the published figures of devices that are not here, `threads` sets torch's number
of threads.
"""

from __future__ import annotations

from .machine import hardware, keep_faster, thread_choices, threads

__all__ = [
    "hardware",
    "keep_faster",
    "thread_choices",
    "threads",
]
