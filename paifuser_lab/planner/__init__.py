"""Which recipe to take: chosen from what the hardware can do, and from measuring the few that could win."""

from __future__ import annotations

from .hardware_plan import plan

__all__ = ["plan"]
