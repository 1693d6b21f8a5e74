"""The queries about a model outside of torch: its export with the recipe into a deploy folder,
target by target, and the session options of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..comparison import compare_settings
from ..converter import target_of
from ..deployment import DeployOptions, deployments
from ..recipe import Recipe
from ..variant import apply
from .memory_queries import without_kinds
from .queries import QUERIES, Query, QueryContext, Records

SECONDS_A_TARGET = 1.0  # for timing a file beside the live model


def _export(context: QueryContext) -> Iterator[Records]:
    """The deployment by the recipe's digest; each target shows as soon as it is done."""
    recipe: Recipe = context.known["recipe"]
    options = dict(context.options)
    folder, targets = options.pop("folder"), options.pop("targets")
    for name in targets:
        target_of(name)
    subject = (
        apply(context.work, recipe, should_stop=context.should_stop)
        if len(recipe)
        else context.work
    )
    chosen = DeployOptions(
        **options, seconds=SECONDS_A_TARGET, comparison=context.known["comparison"]
    )
    known = context.known.get("export") or {}
    grown = deployments(subject, folder, targets, chosen, should_stop=context.should_stop)
    for deployment in grown:
        yield {"export": {**known, recipe.digest: deployment}}


def settings_key(recipe: Recipe) -> str:
    """What the timed options belong to: the recipe without its engine."""
    return without_kinds(recipe, "backend").digest


def _engine_settings(context: QueryContext) -> Iterator[Records]:
    """ONNX Runtime with each of its session options in turn, by the digest of the steps before."""
    recipe: Recipe = context.known["recipe"]
    found = compare_settings(
        context.work, recipe, seconds=context.seconds, should_stop=context.should_stop
    )
    known = context.known.get("engine_settings") or {}
    yield {"engine_settings": {**known, settings_key(recipe): found}}


EXPORT = Query("export", "exporting", "files for other runtimes", 10.0, _export)
ENGINE_SETTINGS = Query(
    "engine_settings",
    "tuning",
    "the session options of ONNX Runtime, in seconds",
    20.0,
    _engine_settings,
)

QUERIES |= {query.name: query for query in (EXPORT, ENGINE_SETTINGS)}
