"""What the widths of groups cost: one kind of sum, whatever is added up.

sizes.py       how long a dimension is when groups have so many units
cost.py        a sum of terms, each of a few sizes, and what it loses when a group does
arithmetic.py  the sums that are known exactly: parameters and FLOPs
"""

from __future__ import annotations

from .arithmetic import flops, parameters, spent_flops
from .cost import Cost, Size, Sizes, Term

__all__ = ["Cost", "Size", "Sizes", "Term", "flops", "parameters", "spent_flops"]
