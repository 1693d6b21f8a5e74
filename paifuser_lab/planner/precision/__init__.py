"""Choose a format for each layer within a budget of time, bytes or loss.

    allocation = plan_precision(work, latency_ms=3.0)  # the least predicted loss, and the frontier
    variant = lab.apply(work, recipe_of(allocation))   # the chosen point; recipe_of(allocation, 4)
    achieved(work, allocation)                         # points measured, beside their predictions
    plan_shares(work, (0.75, 0.5, 0.25))               # a plan for each share of fp32's bytes

layers           the layers whose format can be chosen, and which save each other a conversion
latency          the time of each layer alone in each format, and of the whole model; cached
costs            the cost of each choice, from the sensitivity and the times
program          the exact integer program
frontier         Pareto-optimal points, and each as a short recipe
planning         the plan
measured_points  points of the plan measured
"""

from __future__ import annotations

from .measured_points import achieved
from .planning import plan_precision, plan_shares, recipe_of

__all__ = ["achieved", "plan_precision", "plan_shares", "recipe_of"]
