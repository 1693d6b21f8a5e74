"""The processes that serve and show this one: what they use is the lab's own, no load of others."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import psutil

from .openmp import notebook_shell

# Parts of the names of browsers' processes. Which of them draws the notebook cannot be told.
BROWSERS = (
    "chrom", "headless_shell", "msedge", "brave", "opera", "vivaldi", "safari", "webkit",
    "firefox", "isolated web", "web content",
)  # fmt: skip

_known: dict[int, psutil.Process | None] = {}


def serving_seconds() -> dict[int, float]:
    """The CPU seconds so far, by its id, of each process that started this one (a notebook's
    server, a terminal) and of each of a browser's, if this one runs a notebook.
    """
    global _known
    known = _known = {pid: _known[pid] if pid in _known else _serving(pid) for pid in psutil.pids()}
    spent = {}
    for pid, process in known.items():
        with suppress(psutil.Error):
            if process is not None:
                times = process.cpu_times()
                spent[pid] = float(times.user + times.system)
    return spent


def _serving(pid: int) -> psutil.Process | None:
    """The process if it serves or shows this one."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if pid in _ancestors():
            return process
        if notebook_shell() is not None and any(
            part in process.name().lower() for part in BROWSERS
        ):
            return process
    return None


@cache
def _ancestors() -> frozenset[int]:
    with suppress(psutil.Error):
        return frozenset(process.pid for process in psutil.Process().parents())
    return frozenset()
