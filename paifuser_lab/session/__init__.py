"""An interactive optimisation of one model.

session   choose, undo, query, measure again; what the worker does next, and what is shown of it
history   the recipes that were chosen, and what was measured of each
baseline  the one latency of the unchanged model, of all comparisons that timed it
state     an immutable snapshot of what the views show
"""

from .session import Session

__all__ = ["Session"]
