"""Sums and concatenations in int8: their inputs are rounded too, so that a runtime uses integers.

sources  which layer's values each operator of a run reads, and where they are added
plan     which values are rounded before they are added, and by which module; that module
"""

from __future__ import annotations

from .plan import ResidualPlan, plan_residuals, round_outputs, rounded_outputs

__all__ = ["ResidualPlan", "plan_residuals", "round_outputs", "rounded_outputs"]
