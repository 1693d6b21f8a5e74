"""A changed copy of a model.

variant.py         what it holds, and how it is saved and loaded
apply_recipe.py    makes it: a recipe's steps on a copy, each checked
cache.py           those made lately, the one place that keeps whole models
folder/            the files of a saved one
open.py            a workload by name, or from a folder
quantize.py        a quantized model in one line
"""

from __future__ import annotations

from .apply_recipe import apply
from .cache import kept_variant
from .variant import Variant

__all__ = [
    "Variant",
    "apply",
    "kept_variant",
]
