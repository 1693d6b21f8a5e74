"""Compare models side by side: timed in turn, evaluated on the same data.

comparison   `compare`: the baseline and its variants
contenders   what is timed: each model with each number of threads
rows         a row of the comparison
limit        the quality limit of a variant, and the layers or step that break it
settings     the session options of ONNX Runtime compared on one model
"""

from __future__ import annotations

from .comparison import compare
from .settings import compare_settings

__all__ = [
    "compare",
    "compare_settings",
]
