"""The session options of ONNX Runtime, compared on one model."""

from __future__ import annotations

from typing import Any

import torch

from ..recipe import Recipe
from ..records import Comparison, Measurement
from ..stopping import ShouldStop
from ..workload import Workload, workload_of
from .comparison import ROUNDS, SECONDS, compare

ENGINE, ONE_THREAD = "onnxruntime", "one thread"
# one option is changed at a time; all of them at once would be a row for each combination
CHANGES: dict[str, dict[str, Any]] = {
    "default": {},
    "extended optimisation": {"optimization": "extended"},
    "basic optimisation": {"optimization": "basic"},
    "no optimisation": {"optimization": "none"},
    "parallel branches": {"parallel": True},
    "no arena": {"arena": False},
    "spinning threads": {"spin": True},
}


def compare_settings(
    work: Workload,
    recipe: Recipe | None = None,
    *,
    threads: int | None = None,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    should_stop: ShouldStop | None = None,
) -> Comparison:
    """Time ONNX Runtime with each of its session options in turn, after the steps of `recipe`.

    `threads` is that of each session, by default torch's; one thread is compared, too. The options
    of the fastest row go into the step `backend`.
    """
    work = workload_of(work)
    steps = [step for step in recipe or Recipe() if step.kind != "backend"]
    count = threads or torch.get_num_threads()
    settings = {name: {"threads": count, **change} for name, change in CHANGES.items()}
    if count > 1:
        settings[ONE_THREAD] = {"threads": 1}
    recipes: dict[str, Any] = {
        name: Recipe([*steps, {"backend": {"name": ENGINE, **options}}])
        for name, options in settings.items()
    }
    return compare(
        work,
        rounds=rounds,
        seconds=seconds,
        threads=count,
        metric=False,
        should_stop=should_stop,
        **recipes,
    )


def options_of(row: Measurement) -> dict[str, Any]:
    """The options of the step `backend` that a row of `compare_settings` was timed with."""
    return {"name": ENGINE, "threads": row.threads, **CHANGES.get(row.name, {})}
