"""The section of a memory limit: the predicted peak, and what would keep it under the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...arguments import bytes_of
from ...records import Fit, FitRemedy, MemoryTimeline, readable_bytes
from ...records.table import Table
from ...session.state import State
from ...views.memory_fit import picture
from ...workload.batching import tensor_bytes
from ..section import Bench, Context, Request, Section, of_recipe
from ..wire import cell, pictured

# a remedy → the step that makes it; the others change the caller's own training loop or batch
STEPS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": {"default": "bf16"}},
    "memory reused": {"reuse": {}},
}


def step_of(remedy: FitRemedy) -> dict[str, Any] | None:
    """The step that makes a remedy of a call; None if no step does."""
    return None if remedy.options.train else STEPS.get(remedy.change)


def packed_fit(
    first: Fit | None, second: Fit | None = None, timeline: MemoryTimeline | None = None
) -> dict[str, Any]:
    """The pictures for a call, with the measured bytes, and for a step of training."""
    packed: dict[str, Any] = {"call": None, "training": None}
    for fit in (first, second):
        if fit is not None:
            is_training = fit.predicted.options.train
            measured = _measured(timeline, fit) if timeline and not is_training else {}
            packed["training" if is_training else "call"] = _one(fit, measured)
    return packed


def _one(fit: Fit, measured: dict[str, int]) -> dict[str, Any]:
    peak = fit.predicted
    steps = [step_of(remedy) for remedy in fit.remedies]
    # the page takes a table's columns from its first row
    remedies = [
        row | ({"": _add_button(row["change"], step) if step else ""} if any(steps) else {})
        for row, step in zip(fit.remedy_table(), steps, strict=True)
    ]
    held = [
        row | ({"measured": readable_bytes(measured.get(row["category"]))} if measured else {})
        for row in fit.table()[:-1]
    ]
    within = f"what would make more fit, within {readable_bytes(fit.limit_bytes)}"
    tables = (
        Table((within,), remedies, ("change", "fits", "how", "")),
        Table((f"the predicted peak by category, batch {peak.batch}",), held, Fit.text_columns),
    )
    drawn = replace(
        picture(fit, measured, has_limit=False),
        sentence=f"{peak.sentence} {fit.sentence} {fit.process_sentence}".strip(),
        note=peak.note,
        tables=tables if remedies else tables[1:],
    )
    return {
        "picture": pictured(drawn),
        "limit_bytes": fit.limit_bytes,
        "peak_bytes": peak.peak_bytes,
        "remedies": [[remedy.change, remedy.peak_bytes] for remedy in fit.remedies],
    }


def _add_button(change: str, step: dict[str, Any]) -> Any:
    ask = {"do": "choose", "step": step}
    return cell("Add step", ask=ask, spoken=f"add the step for {change}")


def _measured(timeline: MemoryTimeline, fit: Fit) -> dict[str, int]:
    """The measured bytes at the peak by category; the inputs were there before the call."""
    sums = {"weights": timeline.total_weights_bytes, "activations": 0, "workspace": 0}
    for row in timeline.at_peak:
        if row.kind != "weights":
            sums[row.kind] += row.held_bytes
    return sums | {"inputs": fit.predicted.held.by_category["inputs"]}


def fit_now(state: State, *, train: bool) -> Fit | None:
    """The answer for the current recipe; None if it was not asked for."""
    return (state.record("memory_fit") or {}).get((state.recipe.digest, train))


def limit_of(request: Request) -> int | None:
    """The limit of a request in bytes; None for the default."""
    limit = request.get("limit")
    return None if limit is None else bytes_of(limit)


def _ask(bench: Bench, request: Request) -> None:
    options = {"train": bool(request["train"]), "limit": limit_of(request)}
    bench.session.query("memory_fit", **options)


def _state(state: State, context: Context) -> dict[str, Any]:
    """The bytes of the example inputs, which count towards a limit and belong to no layer."""
    inputs = context.work.inputs
    count = context.once("inputs_bytes", lambda: tensor_bytes(inputs), context.work)
    return {"inputs_bytes": count}


SECTION = Section(
    "memory_fit",
    record=Fit,
    pack=packed_fit,
    sources=lambda state: (
        fit_now(state, train=False),
        fit_now(state, train=True),
        of_recipe(state, "memory"),
    ),
    title="Memory limit",
    tab="options",
    place="memory",
    is_always_shown=True,
    state=_state,
    requests={"memory_fit": _ask},
)
