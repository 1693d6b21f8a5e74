"""Which steps a profiled model has already: they are not advised again."""

from __future__ import annotations

from collections.abc import Iterable

from ..workload import Options

EAGER = "eager"  # the engine that is none


def is_applied(step: Options, applied: Iterable[Options]) -> bool:
    """Whether a step was done before, with what is advised among its options; where an engine runs
    the model no other is advised.
    """
    kind, options = next(iter(step.items()))
    done = [one[kind] for one in applied if kind in one]
    if kind == "backend":
        return any(one.get("name", EAGER) != EAGER for one in done)
    return any(options.items() <= one.items() for one in done)
