"""Shorter networks: the blocks that can be removed from a model, and what replaces them.

blocks.py        find the blocks that return their input when their weights are zero
pass_through.py  the module that replaces a block and is called like it
proof.py         check the shorter model against the model with zeros in those blocks
harm.py          find the blocks whose removal changes the output least
"""

from __future__ import annotations

from .blocks import Blocks, find_blocks
from .harm import least_harm
from .pass_through import replacement_for
from .proof import leave_out, obstacle

__all__ = ["Blocks", "find_blocks", "least_harm", "leave_out", "obstacle", "replacement_for"]
