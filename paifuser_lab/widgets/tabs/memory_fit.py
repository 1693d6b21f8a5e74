"""The section of a memory limit: the predicted peak by category beside the measured one, and what
would have to change to stay under the limit.
"""

from __future__ import annotations

from typing import Any

from ...arguments import bytes_of
from ...errors import MeasureError
from ...records import Fit, FitRemedy, MemoryTimeline
from ...records.predicted_peak import ABOUT
from ...session.state import State
from ...workload.batching import tensor_bytes
from ..section import Bench, Context, Request, Section
from .memory import memory_now

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
    """The answers for a call and for a step of training, and the measured bytes of the call."""
    answers = [fit for fit in (first, second) if fit is not None]
    packed = {("training" if fit.predicted.options.train else "call"): _one(fit) for fit in answers}
    measured = _measured(timeline) if timeline is not None else None
    return {"about": ABOUT, "measured": measured, "call": None, "training": None, **packed}


def _one(fit: Fit) -> dict[str, Any]:
    peak = fit.predicted
    return {
        "title": fit.title,
        "sentence": f"{peak.sentence} {fit.sentence} {fit.process_sentence}".strip(),
        "note": peak.note,
        "batch": peak.batch,
        "options": str(peak.options),
        "limit_bytes": fit.limit_bytes,
        "largest": fit.largest,
        "held": list(peak.held.by_category.items()),
        "layers": [[row.layer, row.held_bytes] for row in peak.layers],
        "remedies": [
            {
                "change": remedy.change,
                "how": remedy.how,
                "batch": remedy.batch,
                "peak_bytes": remedy.peak_bytes,
                "largest_batch": remedy.largest_batch,
                "more_flops": remedy.more_flops,
                "step": step_of(remedy),
            }
            for remedy in fit.remedies
        ],
    }


def _measured(timeline: MemoryTimeline) -> list[list[Any]]:
    """The measured bytes at the peak by category; inputs are not among them."""
    sums = {"weights": timeline.total_weights_bytes, "activations": 0, "workspace": 0}
    for row in timeline.at_peak:
        if row.kind != "weights":
            sums[row.kind] += row.held_bytes
    return [[name, count] for name, count in sums.items()]


def fit_now(state: State, *, train: bool) -> Fit | None:
    """The answer for the current recipe; None if it was not asked for."""
    return (state.record("memory_fit") or {}).get((state.recipe.digest, train))


def limit_of(request: Request) -> int | None:
    """The limit of a request in bytes; None for the default."""
    limit = request.get("limit")
    if limit is not None and not isinstance(limit, int | str):
        raise MeasureError(f"A memory limit of {limit!r} cannot be read; give bytes or '8 GB'.")
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
        memory_now(state),
    ),
    title="Memory limit",
    tab="options",
    place="memory",
    is_wide=True,
    is_always_shown=True,
    state=_state,
    requests={"memory_fit": _ask},
)
