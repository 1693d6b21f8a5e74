"""The cost of a model as a function of the widths of its groups: a sum of terms.

cost.py        a sum of terms, each a product of sizes, and what a narrower group saves
arithmetic.py  the exact sums: parameters and FLOPs
"""

from __future__ import annotations

from .arithmetic import flops, parameters, spent_flops
from .cost import Cost, Size, Sizes, Term

__all__ = ["Cost", "Size", "Sizes", "Term", "flops", "parameters", "spent_flops"]
