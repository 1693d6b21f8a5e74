"""The section of everything tried: go back to any row, compare two, and take one along."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from ..._files import write_text
from ...errors import MeasureError
from ...records import Candidates, ResultPair, ResultRow, Results
from ...records.quality import sign
from ...records.table import Table
from ...records.text import (
    or_dash,
    readable_bytes,
    readable_ms,
    readable_ratio,
    three_figures,
    without_empty,
)
from ...session.state import State
from ...variant.recipe import Recipe
from ...views import figure
from ...views.page import offline_page
from ...views.report import recipe_html
from ...views.results import scatter
from ..recipe_edits import file_name
from ..section import Bench, Context, Request, Section
from ..wire import cell, pictured

MARKED = "compared_results"  # the numbers of the two rows that are compared
LAYERS = "side_by_side"  # the numbers with all that was tried, for their profiles
TAKEN = "taken_result"  # the recipe of the folder or report that was written last, and its name


def packed_results(
    results: Results | None, marked: Any = None, candidates: Candidates | None = None
) -> dict[str, Any] | None:
    """The rows with their verdicts, the best, the two compared, and what a search measured."""
    if results is None:
        return None
    return {
        "current": results.current,
        "scatter": pictured(scatter(results)),
        "rows": [_packed_row(results, row) for row in results.rows],
        "columns": _columns(results),
        "pair": None if marked is None else _packed_pair(results, results.pair(*marked)),
        "search": _packed_search(candidates)
        if candidates is not None and candidates.rows
        else None,
    }


def _packed_search(candidates: Candidates) -> dict[str, Any]:
    """What the search measured, without what no row has; the sheet has the reasons."""
    table = candidates.as_table("What the search measured, each from the model as it came")
    return table._replace(rows=without_empty(table.rows)).without("why").packed()


def _packed_row(results: Results, row: ResultRow) -> dict[str, Any]:
    """A row's texts, its bar from 0 to the slowest, and what can be done with it."""
    ends = [end for other in results.rows for end in (other.latency_ms, *(other.likely_ms or ()))]
    reach = max(filter(None, ends), default=1.0)
    likely = row.likely_ms and [end / reach for end in row.likely_ms]
    refusal = f"failed: {row.failure}" if row.failure else ""
    return {
        "number": row.number,
        "label": results.short_label(row),
        "whole": row.label,
        "tone": row.verdict.tone if row.number else "before",
        "sentence": row.verdict.sentence,
        "ms": row.latency_ms,
        "bar": row.latency_ms and {"now": row.latency_ms / reach, "likely": likely},
        "refusal": refusal or (f"refused: {row.refused}" if row.refused else ""),
        "action": _action(results, row),
    }


def _action(results: Results, row: ResultRow) -> Any:
    name = f"{row.number}, {results.short_label(row)}"
    if row.number == results.current:
        return "here now"
    if row.failure:
        return ""
    if row.refused:
        hint = "choose it all the same: the limit of its recipe becomes what it loses"
        ask = {"do": "allow_result", "number": row.number}
        return cell("Allow", ask=ask, spoken=f"allow {name}", hint=hint)
    ask = {"do": "go_back", "number": row.number}
    return cell("Go back", ask=ask, spoken=f"go back to {name}")


def _columns(results: Results) -> list[dict[str, Any]]:
    """The columns of figures, with what they are sorted by; the least rank gives way first."""
    rows, metric = results.rows, _metric(results)
    worth = [row.metric if metric else row.relative_error for row in rows]
    speeds = [_speedup_text(row) for row in rows]
    rough = ["≈ " if row.verdict.word == "not told" else "" for row in rows]
    times = [sign + readable_ms(row.latency_ms) for sign, row in zip(rough, rows, strict=True)]
    words = [row.verdict.word for row in rows]
    spoken = [", ".join(filter(None, both)) for both in zip(speeds, words, strict=True)]
    sizes = [row.size_bytes for row in rows]
    column = ("name", "label", "width", "rank", "values", "texts", "hint", "spoken")
    far = "" if metric else "the relative distance of the outputs"
    kept = [_worth_text(results, row) for row in rows]
    columns: list[tuple[Any, ...]] = [
        ("ms", "ms", 80, 10, [row.latency_ms for row in rows], times, "", []),
        ("faster", "Faster", 72, 9, [row.speedup for row in rows], speeds, "", spoken),
        ("worth", metric or "Differs by", 76, 8, worth, kept, far, []),
        ("size", "Size", 74, 5, sizes, [readable_bytes(size) for size in sizes], "", []),
    ]
    return [dict(zip(column, values, strict=True)) for values in columns]


def _metric(results: Results) -> str:
    """The metric's name with a capital letter; '' where the outputs' distance is shown."""
    name = (results.metric_name or "") if results.has_metric else ""
    return name[:1].upper() + name[1:]


def _worth_text(results: Results, row: ResultRow) -> str:
    if not _metric(results):
        return "0" if row.relative_error == 0 else or_dash(row.relative_error, "{:.1e}")
    if row.metric is None or not results.is_share:
        return or_dash(row.metric, "{:.4g}")
    return f"{100 * row.metric:.3g} %"


def _worth_after(results: Results, row: ResultRow, before: ResultRow) -> Any:
    """What is kept, with what it changes: points of a share, of another metric percents."""
    text = _worth_text(results, row)
    if row.metric is None or before.metric is None:
        return text
    whole, unit = (1.0, "") if results.is_share else (abs(before.metric), " %")
    change = 100 * (row.metric - before.metric) / whole if whole else 0.0
    is_better = (change > 0) != results.smaller_is_better
    return changed(text, change, unit, is_better=is_better)


def _speedup_text(row: ResultRow) -> str:
    if row.speedup is None:
        return "–"
    rough = sign(row.verdict.word, row.quality) if row.number else ""
    return f"{rough}{readable_ratio(row.speedup)} ×"


def _packed_pair(results: Results, pair: ResultPair) -> dict[str, Any]:
    """The two rows beside each other, with what B changes of A."""
    first, second = pair.first, pair.second
    effect = pair.verdict.sentence.rpartition(" ms · ")[2] if pair.speedup else "–"
    tone = {"good": "good", "bad": "bad"}.get(pair.verdict.tone, "")
    rows = [
        {
            "Compare": f"{letter} · {row.number}",
            "Latency": f"{readable_ms(row.latency_ms)} ms" if row.latency_ms else "–",
            "Faster than A": "–" if row is first else cell(effect, tone=tone),
            _metric(results) or "Outputs differ by": _worth_after(results, row, first),
            "Size": _smaller(row.size_bytes, first.size_bytes),
            "Peak memory": _smaller(row.peak_bytes, first.peak_bytes),
        }
        for letter, row in (("A", first), ("B", second))
    ]
    has_layers = first.has_profile and second.has_profile
    return {
        "first": first.number,
        "second": second.number,
        "table": Table(("A and B",), rows, ("Compare",)).packed(),
        "difference": pair.difference,
        "note": "" if has_layers else "Layer by layer: not kept for one of them.",
    }


def _smaller(now: int | None, before: int | None) -> Any:
    """A size, with the percents that it grew; of itself it grew by nothing."""
    grown = round(100 * (now - before) / before) if now is not None and before else 0
    return changed(readable_bytes(now), grown, " %", is_better=grown < 0)


def changed(text: str, change: float, unit: str, *, is_better: bool) -> Any:
    """A text with by how much it changed, as good or bad."""
    if abs(change) < 0.005:
        return text
    more = f"{'+' if change > 0 else '−'}{three_figures(abs(change))}{unit}"
    return cell(f"{text} {more}", tone="good" if is_better else "bad")


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
    session.show(LAYERS, (session.tried, tuple(numbers)))
    session.show(MARKED, tuple(numbers))


def go_back(bench: Bench, request: Request) -> None:
    """Choose the recipe of a row; undo returns to the present one."""
    bench.recipe = bench.session.tried.recipe(request["number"])


def save_folder(bench: Bench, request: Request) -> None:
    """Have the worker save the model with the chosen recipe as a folder: no round is disturbed."""
    bench.session.show(TAKEN, None)
    state = bench.session.state
    if state.variant is None or state.variant.recipe != state.recipe:
        raise MeasureError("The recipe is not applied yet; save the folder once it is.")
    results = state.results
    if results is None or results.current is None:
        raise MeasureError("The recipe is not measured yet; save the folder once it is.")
    if results[results.current].refused:
        raise MeasureError("The recipe is refused; allow it first, then save the folder.")
    folder = f"{file_name(results.workload)}-faster"
    bench.session.query("save_folder", recipe=state.recipe, folder=folder)


def save_report(bench: Bench, request: Request) -> None:
    """Write everything tried, and the chosen recipe, as one page that needs nothing else."""
    bench.session.show(TAKEN, None)
    state = bench.session.state
    if state.results is None:
        raise MeasureError("Nothing was measured yet; write the report once it is.")
    path = Path(f"{file_name(state.results.workload)}-results.html")
    load = bench.session.work.loading_code
    found = state.record("candidates")
    write_text(path, report_page(state.results, state.recipe, found, load=load))
    bench.session.show(TAKEN, (state.recipe.digest, f"saved: {path.name}"))


def report_page(
    results: Results,
    recipe: Recipe,
    candidates: Candidates | None = None,
    *,
    load: str | None = None,
) -> str:
    """Everything tried as an HTML page: the figure, the recipe and its code, the tables."""
    chosen = recipe_html(recipe, load)
    drawing = figure(results)
    drawing.suptitle("")  # the page's heading says it
    drawing.set_label("everything tried: latency, and accuracy by latency")
    parts = [
        f"<h1>{html.escape(results.title)}</h1>",
        f'<div class="pair"><figure>{drawing.svg()}</figure><div>{chosen}</div></div>',
        _section("Everything tried", results),
        _section("What the search measured", candidates) if candidates else "",
    ]
    return offline_page(f"{results.workload} · results", "".join(parts))


def _section(heading: str, record: Results | Candidates) -> str:
    return f'<h2>{heading}</h2><div class="table">{record.as_table()._repr_html_()}</div>'


def _state(state: State, context: Context) -> dict[str, Any]:
    digest, text = state.record(TAKEN) or ("", "")
    return {"taken": text if digest == state.recipe.digest else ""}


SECTION = Section(
    "results",
    record=Results,
    pack=packed_results,
    title="Results",
    tab="results",
    is_always_shown=True,
    sources=lambda state: (state.results, state.record(MARKED), state.record("candidates")),
    state=_state,
    requests={
        "compare_results": compare_results,
        "go_back": go_back,
        "allow_result": lambda bench, request: bench.session.allow(request["number"]),
        "save_folder": save_folder,
        "report": save_report,
    },
)
