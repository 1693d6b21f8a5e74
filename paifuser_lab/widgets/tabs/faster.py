"""The sheet that makes the model faster: a goal and limits, and the measured candidates, ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...planner import SearchOptions, SearchResult
from ...planner.result import recipe_of
from ...records import Candidate, readable_bytes
from ...records.quality import UNUSABLE, readable_interval
from ...records.table import Table
from ...records.text import in_figures, readable_ms, readable_rate, readable_ratio
from ...session.state import State
from ..section import Bench, Context, Request, Section
from ..wire import cell
from .results import changed

WITHIN, OUTSIDE = "Within your limits, best first", "Outside your limits, or lost"
BAR = "Dashed: as it came"
OPTIONS = ("goal", "metric_drop", "may_train", "seconds")  # of a search, in its order
LEAST_REACH, MOST_REACH = 1.25, 3.0  # of the bars' axis, in unchanged models


def search(bench: Bench, goal: Any, metric_drop: Any, may_train: Any, seconds: Any) -> None:
    """Start a search on the session's worker; options that cannot be used raise at once."""
    SearchOptions(goal, metric_drop, may_train, seconds).check(bench.session.work)
    bench.session.query(
        "faster",
        float(seconds),
        goal=goal,
        metric_drop=float(metric_drop),
        may_train=may_train,
    )


def packed_candidates(found: SearchResult) -> dict[str, Any]:
    """The options of the search, how far it is, and tables of those within the limits and not."""
    done = f"{len(found.rows)} of {found.planned} candidates"
    stopped = ", stopped" if found.is_interrupted else ""
    ranked = [row for row in found.rows if row.rank is not None]
    others = [row for row in found.rows if row.rank is None]
    return {
        "options": found.model_dump(include=set(OPTIONS)),
        "so_far": f"{done} so far · {found.took_s:.0f} s of {found.seconds:g} s{found.batches}",
        "over": f"{done} measured in {found.took_s:.0f} s{stopped}{found.batches}",
        "note": found.note,
        "tables": [
            _table(found, caption, rows)
            for caption, rows in ((WITHIN, ranked), (OUTSIDE, others))
            if rows
        ],
    }


def _table(found: SearchResult, caption: str, rows: Sequence[Candidate]) -> dict[str, Any]:
    looks = {1: "pf-best", None: "pf-out"}
    packed = Table((caption,), [_row(found, row) for row in rows], ("Change", BAR, "")).packed()
    return packed | {"looks": [looks.get(row.rank, "") for row in rows]}


def _row(found: SearchResult, row: Candidate) -> dict[str, Any]:
    """A row; its steps stay in Python, which applies them by the label."""
    has_metric = any(other.metric_lost is not None for other in found.rows)
    name = _metric(found.metric_name)
    lost = f"{name}, points lost or won" if found.is_share else name
    why, rank = row.reason or row.why, f"{row.rank}. " if row.rank else ""
    speed = (
        {"Per second": readable_rate(row.per_second)}
        if found.goal == "throughput"
        else {"ms": readable_ms(row.latency_ms)}
    )
    return {
        "Change": cell(rank + row.label, small=why, hint=f"{row.label}: {why}"),
        BAR: cell("", bar=_bar(found, row), tone=row.tone),
        **speed,
        "Times as fast (likely)": _speed(row),
        lost if has_metric else "Output differs by": _loss(found, row),
        "Size": readable_bytes(row.size_bytes),
        "": _action(found, row),
    }


def _metric(name: str | None) -> str:
    return name[:1].upper() + name[1:] if name else "Metric"


def _bar(found: SearchResult, row: Candidate) -> dict[str, Any] | None:
    """What is left of what the goal makes small, as a share of a width that all rows share."""
    whole = {"size": found.baseline_size_bytes, "memory": found.baseline_peak_bytes}
    base = whole.get(found.goal, 1)
    left = {other.label: (other.value(found.goal) or 0) / (base or 1) for other in found.rows}
    if not base or row.value(found.goal) is None:
        return None
    reach = min(MOST_REACH, max(LEAST_REACH, *left.values()))
    bar: dict[str, Any] = {"now": min(1, left[row.label] / reach), "before": 1 / reach}
    if found.goal in whole or row.interval is None or not min(row.interval) > 0:
        return bar
    return bar | {"likely": [min(1, 1 / (end * reach)) for end in reversed(row.interval)]}


def _speed(row: Candidate) -> Any:
    if row.speedup is None or row.interval is None:
        return "–"
    likely = readable_interval(row.interval, like=row.speedup)
    if row.word == "not told":
        known = "–" if likely == UNUSABLE else f"≈ {likely} ×"
        return cell(known, small="cannot be told")
    sure = row.tone in ("good", "bad")
    return cell(f"{readable_ratio(row.speedup)} ×", small=likely if sure else row.word)


def _loss(found: SearchResult, row: Candidate) -> Any:
    """The points that are lost or won; of a metric that is no share its value and its change in
    percents; without labelled data the output error.
    """
    lost = row.metric_lost
    if lost is not None and not found.is_share:
        now, rise = row.metric or 0.0, lost if found.smaller_is_better else -lost
        change = 100 * rise / abs(now - rise) if now != rise else 0.0
        return changed(f"{now:.4g}", change, " %", is_better=lost < 0)
    if lost is not None:
        points = round(-100 * lost, 1)
        return f"{points:+.1f}".replace("-", "−") if points else "0.0"
    if row.relative_error is None:
        return "–"
    return "0.0" if row.relative_error < 1e-3 else f"{row.relative_error:.2g}"


def _action(found: SearchResult, row: Candidate) -> Any:
    """What can be done with a row: apply it, search again with what lets it in, or nothing."""
    if row.rank is not None:
        ask = {"do": "apply_candidate", "label": row.label}
        hint = "replaces what is chosen; undo returns"
        look = "pf-button pf-primary" if row.rank == 1 else "pf-button"
        return cell("Apply", ask=ask, hint=hint, look=look)
    if row.allow:
        in_points = row.metric_lost is not None and found.is_share
        drop = row.allow.get("metric_drop", 0) * (100 if in_points else 1)
        text = "Allow training" if row.allow.get("may_train") else f"Allow {in_figures(drop, 2)}"
        ask = {"do": "faster", **row.allow}
        return cell(text, ask=ask, hint="search again with it", look="pf-button")
    slower = row.word == "slower"
    return cell("slower" if slower else row.status, tone="bad" if row.tone == "bad" else "open")


def _search(bench: Bench, request: Request) -> None:
    search(bench, *(request[name] for name in OPTIONS))


def _apply(bench: Bench, request: Request) -> None:
    candidates = bench.session.state.record("candidates")
    bench.recipe = recipe_of(candidates, str(request["label"]), bench.session.work.loaded_as)


def _state(state: State, context: Context) -> dict[str, Any]:
    """Whether there are data to train with, and what is measured on the test data, if anything."""
    work, results = context.work, state.results
    has_metric = work.metric is not None and work.test is not None
    is_share = not work.smaller_is_better and (results is None or results.is_share)
    name, how = _metric(work.metric_name), "I can lose, points" if is_share else "may be worse by"
    return {
        "can_train": work.train is not None,
        "in_points": has_metric and is_share,
        "is_bounded": not (has_metric and work.smaller_is_better),  # by 1, as a search bounds it
        "loss_label": f"{name} {how}" if has_metric else "Output may differ by",
    }


SECTION = Section(
    "faster",
    record=SearchResult,
    record_name="candidates",
    pack=packed_candidates,
    title="Make it faster",
    tab="layers",
    place="sheet",
    is_always_shown=True,
    state=_state,
    requests={"faster": _search, "apply_candidate": _apply},
)
