"""Compare models side by side: timed in turn, evaluated on the same data.

comparison   `compare`: the baseline and its variants; the session options of ONNX Runtime
trial        what is timed, and the rows that come of it
limit        the quality limit of a variant, and the layers or step that break it
"""

from __future__ import annotations

from .comparison import compare, compare_settings

__all__ = [
    "compare",
    "compare_settings",
]
