"""Variants beside the baseline: timed in turn, judged by one rule, and held to a recipe's limit.

`comparison` measures, `limit` refuses what passes the recipe's limit and names the layers to blame.
"""

from __future__ import annotations

from .comparison import compare

__all__ = [
    "compare",
]
