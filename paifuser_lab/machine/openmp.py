"""Release the OpenMP threads of the calling thread, so that another thread's run at full speed.

libgomp, which torch's CPU operators use on Linux, keeps a pool of threads for each thread that ran
an operator. With a second pool there are more threads than cores; it then stops spinning, and each
operator sleeps and wakes its threads through the kernel, in both threads. So a thread releases its
pool when it has finished; the next operator makes a new one.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

PAUSE_HARD = 2  # of OpenMP's omp_pause_resource_t; libgomp treats soft (1) and hard alike
MAPS = Path("/proc/self/maps")


def release_pool() -> bool:
    """Release this thread's pool of OpenMP threads; False where torch uses no libgomp.

    Does nothing inside a parallel region.
    """
    library = _libgomp()
    if library is None:
        return False
    return bool(library.omp_pause_resource_all(PAUSE_HARD) == 0)


def sleeps() -> int | None:
    """How often this thread has gone to sleep so far (voluntary context switches): beside a second
    pool, dozens of times a call, else hardly ever. None where the system does not count it.
    """
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (ImportError, AttributeError):  # Windows, macOS
        return None


def release_after_cells() -> None:
    """In a notebook, release the main thread's pool after each cell, so that a worker thread that
    measures meanwhile does not wait for its own threads.
    """
    shell = notebook_shell()
    if shell is not None and _after_cell not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _after_cell)


def notebook_shell() -> Any:
    """The IPython shell that runs this process's cells; None in a script."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def _after_cell(result: object) -> None:
    release_pool()


@cache
def _libgomp() -> ctypes.CDLL | None:
    """The libgomp that torch has loaded; None on another system or with another OpenMP."""
    folder = str(Path(torch.__file__).parent)
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}
    own = [path for path in paths if path.startswith(folder)] or sorted(paths)[:1]
    if not own:
        return None
    library = ctypes.CDLL(own[0])
    return library if hasattr(library, "omp_pause_resource_all") else None
