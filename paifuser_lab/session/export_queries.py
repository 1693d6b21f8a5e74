"""The query that exports the model with the recipe into a deploy folder, target by target."""

from __future__ import annotations

from collections.abc import Iterator

from ..converter import target_of
from ..deployment import DeployOptions, deployments
from ..recipe import Recipe
from ..variant import apply
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


EXPORT = Query("export", "exporting", "files for other runtimes", 10.0, _export)

QUERIES |= {EXPORT.name: EXPORT}
