"""Where a model spends its time, memory and bytes, and why a layer is not faster.

profile = profiler.profile(work)                 # also lab.profile: a row a layer, a tree above it
profiler.explain(profile, "layer1.0.conv1")      # sentences from facts, each with the step that would help
profiler.side_by_side(work, variant)             # both, their runs in turn, matched by path
"""

from __future__ import annotations

from .layers import profile, profile_in_turn
from .pairs import side_by_side
from .why import explain

__all__ = ["explain", "profile", "profile_in_turn", "side_by_side"]
