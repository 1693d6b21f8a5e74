"""ONNX Runtime's session options, timed in turn, and put into the recipe with a click."""

from __future__ import annotations

from typing import Any

from ...errors import RecipeError
from ...jobs.queries import settings_key
from ...records import Comparison, Measurement
from ...records.quality import readable_interval
from ...session.state import State
from ...variant.comparison import options_of
from ...variant.recipe import Recipe
from ..recipe_edits import with_options
from ..section import Bench, Context, Request, Section

FIGURES = ("name", "threads", "speedup", "failure")


def packed_settings(comparison: Comparison | None, recipe: Recipe) -> dict[str, Any] | None:
    """A row for the model in torch and for each option, with its verdict and whether it is used."""
    if comparison is None:
        return None
    engine = [step for step in recipe if step.kind == "backend"]
    return {"rows": [_packed_row(row, comparison, engine) for row in comparison.rows]}


def _packed_row(row: Measurement, comparison: Comparison, engine: list[Any]) -> dict[str, Any]:
    verdict = comparison.verdict(row)
    is_option = not row.name.startswith("baseline")
    interval = row.speedup_interval
    return {
        **{name: getattr(row, name) for name in FIGURES},
        "likely": None if interval is None else readable_interval(interval),
        "word": verdict.word,
        "tone": verdict.tone,
        "is_option": is_option,
        "is_used": is_option and list(Recipe([{"backend": options_of(row)}])) == engine,
    }


def settings_now(state: State) -> Comparison | None:
    """The timed options for the recipe's steps before the engine; None if there are none."""
    known = state.record("engine_settings") or {}
    found: Comparison | None = known.get(settings_key(state.recipe))
    return found


def _use(bench: Bench, request: Request) -> None:
    """Put the options of a row into the recipe, in place of its engine."""
    found, name = settings_now(bench.session.state), str(request["name"])
    rows = {row.name: row for row in found.rows} if found is not None else {}
    if name not in rows or name.startswith("baseline"):
        raise RecipeError(f"The option '{name}' was not timed with this recipe; time it first.")
    bench.recipe = with_options(bench.recipe, "backend", options_of(rows[name]))


def _not_on_a_cpu(state: State, context: Context) -> str:
    return "" if context.work.device.type == "cpu" else "only for a model on a CPU"


SECTION = Section(
    "engine_settings",
    pack=packed_settings,
    sources=lambda state: (settings_now(state), state.recipe),
    title="ONNX Runtime's options",
    tab="exports",
    absent=_not_on_a_cpu,
    is_always_shown=True,
    requests={
        "engine_settings": lambda bench, request: bench.session.query("engine_settings"),
        "use_engine_settings": _use,
    },
)
