"""Shorter networks: which blocks a model may do without, and what stands in their places.

blocks.py    the blocks that answer their input when their weights are zero
passing.py   what stands in a block's place and is called as it was
proving.py   the shorter model against the same model with zeros in those blocks
harm.py      the blocks without which the answer changes least
"""

from __future__ import annotations

from .blocks import Blocks, find_blocks
from .harm import least_harm
from .pass_through import replacement_for
from .proof import leave_out, obstacle

__all__ = ["Blocks", "find_blocks", "least_harm", "leave_out", "obstacle", "replacement_for"]
