"""One notebook run with every combination of many values, each in a process of its own; what is
complete is not run again.

grid.py      which runs there are, known before the first begins
running.py   the processes, a few at a time, ended in order when somebody stops them
worker.py    what such a process does
reporting.py the figures in what a run left
"""

from __future__ import annotations

from .grid import values_of
from .run import sweep

__all__ = ["sweep", "values_of"]
