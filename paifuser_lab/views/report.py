"""A variant as one page to send: what it brings, where, how it was measured, and how to repeat it.
It loads and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import write_text
from ..records import Comparison, Measurement, ModelGraph, SideBySide, readable_bytes
from ..records.record import TableRecord
from . import figure
from .page import offline_page

if TYPE_CHECKING:
    from ..variant import Variant
    from ..variant.recipe import Recipe
    from ..workload import Workload

FACTS: dict[str, tuple[str, Callable[[float], str]]] = {  # of a measurement, and its text
    "latency": ("latency_ms", lambda ms: f"{ms:.3g} ms"),
    "weights": ("size_bytes", lambda size: readable_bytes(int(size))),
    "peak memory": ("peak_bytes", lambda size: readable_bytes(int(size))),
}


def report(
    work: Workload, variant: Variant, path: str | Path = "report.html", *, seconds: float = 20.0
) -> Path:
    """Measure a variant beside its unchanged model, in total and layer by layer, and write all of
    it as one page that works offline; returns its path.
    """
    from ..profiler.compared import explain  # a page of records needs no torch
    from ..variant.comparison import compare

    compared = compare(work, variant, seconds=seconds / 2)
    sides = explain(work, variant, seconds=seconds / 2)
    return write_text(path, report_page(compared, variant.recipe, work.graph(), sides))


def report_page(
    compared: Comparison, recipe: Recipe, graph: ModelGraph, sides: SideBySide | None = None
) -> str:
    """The page of the last row of a comparison, and of its baseline."""
    row, base = compared.rows[-1], compared[compared.baseline]
    verdict = row.failure or row.refused or compared.verdict(row).sentence
    facts = "".join(
        f"<div><dt>{name}</dt><dd><b>{text}</b></dd></div>" for name, text in _facts(base, row)
    )
    parts = [
        f"<header><h1>{escape(compared.workload)}: {escape(recipe.label)}</h1>"
        f"<p>{escape(verdict)}</p><p>{escape(compared.machine)}</p><dl>{facts}</dl></header>",
        f'<div class="pair"><figure>{figure(compared).svg()}</figure>',
        f"<div>{recipe_html(recipe)}</div></div>",
        table_html("Measured", compared),
    ]
    if sides is not None:
        parts.append(f"<h2>Layer by layer</h2><figure>{figure(sides).svg()}</figure>")
        parts.append(table_html(sides.title, sides))
    parts.append(f"<h2>The model</h2><figure>{figure(graph).svg()}</figure>")
    return offline_page(f"{compared.workload} · {recipe.label}", "".join(parts))


def _facts(base: Measurement, row: Measurement) -> list[tuple[str, str]]:
    """The figures of both, those that are known."""
    pairs = {
        name: (getattr(base, attribute), getattr(row, attribute), text)
        for name, (attribute, text) in FACTS.items()
    }
    return [
        (name, f"{text(before)} → {text(after)}")
        for name, (before, after, text) in pairs.items()
        if before and after
    ]


def recipe_html(recipe: Recipe) -> str:
    """A recipe as YAML and as code."""
    return (
        f"<h2>The chosen recipe: {escape(recipe.label)}</h2><pre>{escape(recipe.to_text())}</pre>"
        f"<h2>The same in Python</h2><pre>{escape(recipe.as_code())}</pre>"
    )


def table_html(heading: str, record: TableRecord) -> str:
    """A record's table under a heading."""
    return f'<h2>{escape(heading)}</h2><div class="table">{record.as_table()._repr_html_()}</div>'
