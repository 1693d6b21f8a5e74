"""Run a notebook with every combination of parameter values, each in its own process; complete runs
are not repeated.

    grid.py     the combinations, checked before the first run
    run.py      the processes, a few at a time, and their interruption
    worker.py   the code of each process
    report.py   the figures in a run's report.json
"""

from __future__ import annotations

from .grid import values_of
from .run import sweep

__all__ = ["sweep", "values_of"]
