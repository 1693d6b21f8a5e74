"""Variants: changed copies of a model.

variant.py         the class, and how it is saved and loaded
apply_recipe.py    applies a recipe's steps to a copy and checks each
cache.py           the variants created last, the only cache of whole models
folder.py          the files of a saved variant
open.py            loads a workload by name, or from a folder
quantize.py        quantizes a model in one call
"""

from __future__ import annotations

from .apply_recipe import apply, apply_as_timed
from .cache import kept_variant
from .variant import Variant

__all__ = [
    "Variant",
    "apply",
    "apply_as_timed",
    "kept_variant",
]
