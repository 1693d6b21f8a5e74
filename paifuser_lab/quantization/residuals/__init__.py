"""Sums and concatenations in int8: their inputs are rounded too, so that a runtime uses integers.

sources         which layer's values each operator of a run reads, and where they are added
plan            which values are rounded before they are added, and by which module
rounded_output  a module whose output is rounded
"""

from __future__ import annotations

from .plan import ResidualPlan, plan_residuals
from .rounded_output import round_outputs, rounded_outputs

__all__ = ["ResidualPlan", "plan_residuals", "round_outputs", "rounded_outputs"]
