"""A changed copy of a model: `variant` makes it, `folder` saves and loads it, `open` and `quantize`
are the short ways.
"""

from __future__ import annotations

from .variant import Variant, apply, drop_oldest

__all__ = [
    "Variant",
    "apply",
    "drop_oldest",
]
