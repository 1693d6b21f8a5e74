"""Check the arguments of `lab.sensitivity` before anything runs, and select the methods that a
workload allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ..errors import MeasureError
from ..formats import NAMES, format_of
from ..model.weights import weights_hash
from ..records import Sensitivity
from ..workload import Workload
from ..workload.data import SampledBatches
from .methods import ESTIMATORS


def check_arguments(
    formats: Sequence[str], methods: Sequence[str], error: float, seconds: float | None
) -> None:
    """Raise for unknown formats and methods, and for limits that cannot be met."""
    if isinstance(formats, str) or isinstance(methods, str):
        raise MeasureError(
            "formats and methods are lists; write formats=('int8',) and methods=('quadratic',)."
        )
    if not formats or not methods:
        raise MeasureError("there is nothing to estimate; name at least one format and one method.")
    for name in formats:
        try:
            format_of(name)
        except ValueError as problem:
            raise MeasureError(
                f"{problem}, and int2-weights … int8-weights to estimate{_nearest(name, NAMES)}."
            ) from problem
    for name in methods:
        if name not in ESTIMATORS:
            raise MeasureError(
                f"{name!r} is no method; there are "
                f"{', '.join(ESTIMATORS)}{_nearest(name, tuple(ESTIMATORS))}."
            )
    if not error > 0:
        raise MeasureError(
            f"a relative standard error of {error} is never reached; set one above 0, such as 0.2."
        )
    if seconds is not None and not seconds > 0:
        raise MeasureError(f"{seconds} seconds leave no time to estimate; give more than 0.")


def methods_for(
    work: Workload, data: SampledBatches, methods: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The methods that this workload allows, and notes on those it does not."""
    requested = list(dict.fromkeys(methods))
    missing = "loss" if work.loss is None else "data" if data.what == "example inputs" else None
    refused = [name for name in requested if ESTIMATORS[name].needs_loss] if missing else []
    allowed = [name for name in requested if name not in refused]
    notes = [f"estimated on the {data.what}"] if data.what == "test data" else []
    if refused:
        allowed = allowed or ["output"]
        instead = f"estimated by {' and '.join(allowed)} on the {data.what} instead"
        verb = "needs" if len(refused) == 1 else "need"
        notes.append(
            f"{work.name} has no {missing}, which {' and '.join(refused)} {verb}: {instead}"
        )
    return allowed, notes


def check_resumed(work: Workload, resume: Sensitivity, seed: int) -> None:
    """Raise where the earlier record is of another workload, other weights or another seed."""
    if resume.workload != work.name:
        raise MeasureError(
            f"the earlier record is of {resume.workload}, not of {work.name}; leave resume out."
        )
    if resume.weights_hash not in (None, weights_hash(work.model)):
        raise MeasureError(
            f"the weights of {work.name} are not those of the earlier record; leave resume out."
        )
    if resume.seed != seed:
        raise MeasureError(
            f"the earlier record drew its batches with seed={resume.seed}; continue with that seed."
        )


def _nearest(name: object, names: Sequence[str]) -> str:
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""
