"""An interactive optimisation of one model.

session   what a caller does: choose, undo, query, measure again
jobs      what the worker does: apply, measure and profile recipes, run queries
kept      the records that are kept, all with one latency of the unchanged model
baseline  that latency, of all comparisons that timed it
history   undo, redo, and the cached records of each recipe
tried     a row for each recipe that was measured or failed
queries   what a view can request: sensitivity, importance, coupling, allocation and others
memory_queries  those about memory: does it fit, how buffers pack, what a pool spares
export_queries  the one that writes a deploy folder
state     an immutable snapshot of what the views show
first_profile  the last profile of a model, shown until there is a new one
quiet     the load of other processes, and waiting until there is none
worker    a state with listeners, and a thread that runs jobs
"""

from __future__ import annotations

from . import export_queries as export_queries  # registers it
from . import memory_queries as memory_queries  # registers them
from .session import Session

__all__ = ["Session"]
