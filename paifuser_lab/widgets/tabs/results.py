"""The section of everything tried: go back to any row, compare two, and take one along."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from ..._files import write_text
from ...errors import MeasureError
from ...profiler import side_by_side
from ...records import Candidates, ResultPair, ResultRow, Results
from ...records.quality import sign
from ...records.text import readable_ms, readable_ratio, without_empty
from ...session.state import State
from ...variant.recipe import Recipe
from ...views import figure
from ...views.page import offline_page
from ...views.results import scatter
from ..section import Bench, Context, Request, Section
from ..wire import pictured

MARKED = "compared_results"  # the numbers of the two rows that are compared
LAYERS = "side_by_side"  # their profiles, layer by layer
TAKEN = "taken_result"  # what was written last: a folder or a report


def packed_results(
    results: Results | None, marked: Any = None, candidates: Candidates | None = None
) -> dict[str, Any] | None:
    """The rows with their verdicts, the best, the two compared, and what a search measured."""
    if results is None:
        return None
    has_metric = bool(results.measured) and results.trade_off.unit != "closeness"
    return {
        "title": results.title,
        "metric": results.metric_name if has_metric else "",
        "current": results.current,
        "scatter": pictured(scatter(results)),
        "rows": [_packed_row(results, row) for row in results.rows],
        "pair": None if marked is None else _packed_pair(results.pair(*marked)),
        "search": _packed_search(candidates)
        if candidates is not None and candidates.rows
        else None,
    }


def _packed_search(candidates: Candidates) -> dict[str, Any]:
    """What the search measured, without what no row has; the sheet has the reasons."""
    table = candidates.as_table("What the search measured, each from the model as it came")
    return table._replace(rows=without_empty(table.rows)).without("why").packed()


def _packed_row(results: Results, row: ResultRow) -> dict[str, Any]:
    verdict = row.verdict
    return {
        "number": row.number,
        "label": results.short_label(row),
        "whole": row.label,
        "ms": row.latency_ms,
        "ms_text": "–" if row.latency_ms is None else readable_ms(row.latency_ms),
        "likely": row.likely_ms,
        "speedup": row.speedup,
        "speedup_text": _speedup_text(row),
        "word": verdict.word,
        "tone": verdict.tone,
        "sentence": verdict.sentence,
        "metric": row.metric,
        "error": row.relative_error,
        "size": row.size_bytes,
        "peak": row.peak_bytes,
        "refused": row.refused or "",
        "failure": row.failure or "",
        "has_profile": row.has_profile,
    }


def _speedup_text(row: ResultRow) -> str:
    if row.speedup is None:
        return "–"
    rough = sign(row.verdict.word, row.quality) if row.number else ""
    return f"{rough}{readable_ratio(row.speedup)} ×"


def _packed_pair(pair: ResultPair) -> dict[str, Any]:
    return {
        "first": pair.first.number,
        "second": pair.second.number,
        "word": pair.verdict.word,
        "tone": pair.verdict.tone,
        "effect": pair.verdict.sentence.rpartition(" ms · ")[2] if pair.speedup else "",
        "difference": pair.difference,
        "layers": pair.first.has_profile and pair.second.has_profile,
    }


def compare_results(bench: Bench, request: Request) -> None:
    """Compare two rows; layer by layer where both profiles are kept. No rows: end it."""
    session, numbers = bench.session, request.get("numbers") or []
    if not numbers:
        session.show(MARKED, None)
        session.show(LAYERS, None)
        return
    results = session.state.results
    if results is None or len(numbers) != 2:
        raise MeasureError("Mark two results to compare them.")
    results.pair(*numbers)
    first, second = (session.tried.profile(number) for number in numbers)
    has_layers = first is not None and second is not None and first is not second
    session.show(LAYERS, side_by_side(first, second) if has_layers and first and second else None)
    session.show(MARKED, tuple(numbers))


def go_back(bench: Bench, request: Request) -> None:
    """Choose the recipe of a row; undo returns to the present one."""
    bench.recipe = bench.session.tried.recipe(request["number"])


def allow(bench: Bench, request: Request) -> None:
    """Choose a refused row all the same, within a limit of what it loses."""
    bench.session.allow(request["number"])


def save_folder(bench: Bench, request: Request) -> None:
    """Have the worker save the model with the chosen recipe as a folder: no round is disturbed."""
    state = bench.session.state
    if state.variant is None or state.variant.recipe != state.recipe:
        raise MeasureError("The recipe is not applied yet; save the folder once it is.")
    results = state.results
    if results is None or results.current is None:
        raise MeasureError("The recipe is not measured yet; save the folder once it is.")
    if results[results.current].refused:
        raise MeasureError("The recipe is refused; allow it first, then save the folder.")
    folder = f"{_file_name(state)}-faster"
    bench.session.query("save_folder", recipe=state.recipe, folder=folder)


def save_report(bench: Bench, request: Request) -> None:
    """Write everything tried, and the chosen recipe, as one page that needs nothing else."""
    state = bench.session.state
    if state.results is None:
        raise MeasureError("Nothing was measured yet; write the report once it is.")
    path = Path(f"{_file_name(state)}-results.html")
    write_text(path, report_page(state.results, state.recipe, state.record("candidates")))
    bench.session.show(TAKEN, f"saved: {path.name}")


def report_page(results: Results, recipe: Recipe, candidates: Candidates | None = None) -> str:
    """Everything tried as an HTML page: the figure, the recipe and its code, the tables."""
    drawing = figure(results)
    drawing.suptitle("")  # the page's heading says it
    drawing.set_label("everything tried: latency, and accuracy by latency")
    chosen = [
        f"<h2>The chosen recipe: {html.escape(recipe.label)}</h2>",
        f"<pre>{html.escape(recipe.to_text())}</pre>",
        "<h2>The same in Python</h2>",
        f"<pre>{html.escape(recipe.as_code())}</pre>",
    ]
    parts = [
        f"<h1>{html.escape(results.title)}</h1>",
        f'<div class="pair"><figure>{drawing.svg()}</figure><div>{"".join(chosen)}</div></div>',
        _section("Everything tried", results),
        _section("What the search measured", candidates) if candidates else "",
    ]
    return offline_page(f"{results.workload} · results", "".join(parts))


def _section(heading: str, record: Results | Candidates) -> str:
    return f'<h2>{heading}</h2><div class="table">{record.as_table()._repr_html_()}</div>'


def _file_name(state: State) -> str:
    name = state.results.workload if state.results else state.recipe.workload or "model"
    return re.sub(r"[^\w.-]+", "_", str(name)).strip("._") or "model"


def _state(state: State, context: Context) -> dict[str, Any]:
    return {"taken": state.record(TAKEN) or ""}


SECTION = Section(
    "results",
    record=Results,
    pack=packed_results,
    title="Results",
    tab="results",
    is_wide=True,
    is_always_shown=True,
    sources=lambda state: (state.results, state.record(MARKED), state.record("candidates")),
    state=_state,
    requests={
        "compare_results": compare_results,
        "go_back": go_back,
        "allow_result": allow,
        "save_folder": save_folder,
        "report": save_report,
    },
)
