"""Shorter networks: the blocks that can be removed from a model, and what replaces them.

blocks.py        find the blocks that return their input when their weights are zero
pass_through.py  the module that replaces a block and is called like it
harm.py          find the blocks whose removal changes the output least; check the shorter model
                 against the model with zeros in those blocks
"""

from __future__ import annotations

from .blocks import Blocks, find_blocks
from .harm import least_harm, leave_out, obstacle
from .pass_through import replacement_for

__all__ = ["Blocks", "find_blocks", "least_harm", "leave_out", "obstacle", "replacement_for"]
