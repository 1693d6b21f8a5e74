"""Models side by side, timed in turn and judged on the same data.

comparison   `compare`: the baseline and its variants
contenders   what is timed: each model with each number of threads
rows         a row of the comparison
limit        what a variant may cost in quality, and which layers or step are to blame
"""

from __future__ import annotations

from .comparison import compare

__all__ = [
    "compare",
]
