"""A recipe as chips."""

from __future__ import annotations

import html
from typing import Any

from ..recipe import Recipe
from .panel import Panel


class RecipePanel(Panel):
    """The steps in order, each with why it was chosen."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__("recipe", workload=recipe.workload or "")
        self.recipe = recipe
        self.data = {"title": recipe.label, "steps": chips(recipe)}

    def twin(self) -> str:
        return f"<pre>{html.escape(self.recipe.to_text())}</pre>"

    def __repr__(self) -> str:
        return f"RecipePanel({self.recipe.label})"


def chips(recipe: Recipe) -> list[dict[str, Any]]:
    """What a page needs to know of each step."""
    return [{"label": step.label, "kind": step.kind, "why": step.why or ""} for step in recipe]
