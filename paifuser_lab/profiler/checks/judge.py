"""How a line of the checklist comes about: a value against its limit, or a reason why there is
none.
"""

from __future__ import annotations

from typing import Any

from ...records import Check

LOOP_WANTED = "hand in your own loop: profiler.checklist(lambda: …)"
WORKLOAD_WANTED = "hand in profiler.checklist(lab.Workload(model, inputs))"


def judged(
    name: str,
    value: float,
    limit: float,
    figure: str,
    remedy: str = "",
    *,
    step: dict[str, Any] | None = None,
) -> Check:
    """Passed up to the limit, failed above it; the remedy is said only where it is needed."""
    if value <= limit:
        return Check(name=name, outcome="passed", figure=figure, value=value, limit=limit)
    return Check(
        name=name,
        outcome="failed",
        figure=figure,
        remedy=remedy,
        step=step,
        value=value,
        limit=limit,
    )


def unmeasurable(name: str, why: str) -> Check:
    """Nothing to judge by here, and why."""
    return Check(name=name, outcome="not measurable", figure=why)


def percent(share: float) -> str:
    """0.034 → '3.4%': two figures, and no more than 100."""
    if 0 < share < 0.0001:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def listed(names: list[str], *, most: int = 3) -> str:
    """The first few, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
