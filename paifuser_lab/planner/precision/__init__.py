"""A format for each layer, within a budget of time, bytes or loss.

allocation = plan_precision(work, latency_ms=3.0)       # the least predicted loss within 3 ms, and
the whole frontier variant = lab.apply(work, recipe_of(allocation))        # the chosen point;
recipe_of(allocation, 4) another achieved(work, allocation)                              # what
points of the frontier really do, beside what was predicted

    places.py     the layers that can be chosen, and their inputs
    latency.py    each of them alone in each format, timed in turn and kept
    wholes.py     the whole model, from which their times count
    handing.py    which int8 layers spare each other a conversion
    costs.py      what a choice costs, from a sensitivity and the times
    program.py    the exact integer program
    frontier.py   its points; spelling.py: each as a short recipe
    losses.py     how much a changed model loses
    planning.py   the plan; achieving.py: the proof of it
"""

from __future__ import annotations

from .measured_points import achieved
from .planning import plan_precision, recipe_of

__all__ = ["achieved", "plan_precision", "recipe_of"]
