"""An interactive optimisation of one model.

session   chooses, applies and measures recipes, runs queries, and holds the state of the views
history   undo, redo, and the cached records of each recipe
queries   what a view can request: sensitivity, importance, coupling, allocation and others
state     an immutable snapshot of what the views show
worker    a state with listeners, and a thread that runs jobs
"""

from __future__ import annotations

from .session import Session

__all__ = ["Session"]
