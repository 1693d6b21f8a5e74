"""What to do to a model, as plain data: `recipe` is the list of steps, `yaml_text` its file,
`rounds` cutting little by little.
"""

from __future__ import annotations

from .recipe import Recipe, checked_recipe

__all__ = [
    "Recipe",
    "checked_recipe",
]
