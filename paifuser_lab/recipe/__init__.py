"""Recipes: the steps to apply to a model, as plain data. `recipe` holds the class, `checks` its
validation, `yaml_text` reads and writes YAML.
"""

from __future__ import annotations

from .recipe import Recipe, checked_recipe

__all__ = [
    "Recipe",
    "checked_recipe",
]
