"""An interactive optimisation of one model.

session   recipes chosen, applied and measured; queries answered; the state that views show
history   undo, redo, and the records kept of each recipe
queries   what a view can ask for: sensitivity, importance, coupling, allocation and others
state     what there is to show at one moment
worker    a state with listeners, and a thread that runs jobs
"""

from __future__ import annotations

from .session import Session

__all__ = ["Session"]
