"""A variant as one offline page: what it brings, how it was measured, how to repeat it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import write_text
from ..records import Comparison, Measurement, ModelGraph, SideBySide, readable_bytes
from ..records.record import TableRecord
from ..records.text import readable_ms, view
from . import figure
from .page import Fact, offline_page

if TYPE_CHECKING:
    from ..variant import Variant
    from ..variant.recipe import Recipe
    from ..workload import Workload

FACTS: dict[str, tuple[str, Callable[[float], str]]] = {  # of a measurement, and its text
    "latency": ("latency_ms", lambda ms: f"{readable_ms(ms)} ms"),
    "weights": ("size_bytes", lambda size: readable_bytes(int(size))),
    "peak memory": ("peak_bytes", lambda size: readable_bytes(int(size))),
}


def report(
    work: Workload, variant: Variant, path: str | Path = "report.html", *, seconds: float = 20.0
) -> Path:
    """Measure a variant beside its unchanged model and write it as one offline page; its path."""
    from ..profiler.compared import explain  # a page of records needs no torch
    from ..variant.comparison import compare

    compared = compare(work, variant, seconds=seconds / 2)
    sides = explain(work, variant, seconds=seconds / 2)
    page = report_page(compared, variant.recipe, work.graph(), sides, load=work.loading_code)
    return write_text(path, page)


def report_page(
    compared: Comparison,
    recipe: Recipe,
    graph: ModelGraph,
    sides: SideBySide | None = None,
    *,
    load: str | None = None,
) -> str:
    """The page of a comparison's last row and baseline; `load` is the line that loads the model."""
    row, base = compared.rows[-1], compared[compared.baseline]
    heading = f"{compared.workload}: {recipe.label}"
    sections = [("Measured", "", _table(compared))]
    if sides is not None:
        sections.append(("Layer by layer", figure(sides).svg(), _table(sides)))
    sections.append(("The model", figure(graph).svg(), ""))
    body = view(
        "report_body",
        heading,
        row.failure or row.refused or compared.verdict(row).sentence,
        compared.machine,
        _facts(base, row),
        figure(compared).svg(),
        recipe_html(recipe, load),
        sections,
    )
    return offline_page(heading, body)


def _facts(base: Measurement, row: Measurement) -> list[Fact]:
    """The figures of both, those that are known."""
    return [
        (name, f"{text(getattr(base, key))} → {text(getattr(row, key))}", "")
        for name, (key, text) in FACTS.items()
        if getattr(base, key) and getattr(row, key)
    ]


def recipe_html(recipe: Recipe, load: str | None = None) -> str:
    """A recipe as YAML and as code, in which `load` is the line that loads the model."""
    return view("recipe", recipe.label, recipe.to_text(), recipe.as_code(load))


def _table(record: TableRecord) -> str:
    return record.as_table()._repr_html_()
