"""Make a line of the checklist: a value compared with its limit, or why there is none."""

from __future__ import annotations

from typing import Any

from ...records import Check

LOOP_HINT = "hand in your own loop: profiler.checklist(lambda: …)"
WORKLOAD_HINT = "hand in profiler.checklist(lab.Workload(model, inputs))"


def pass_or_fail(
    name: str,
    value: float,
    limit: float,
    figure: str,
    remedy: str = "",
    *,
    step: dict[str, Any] | None = None,
) -> Check:
    """A line that passed up to the limit or failed above it; only a failed one has the remedy."""
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


def unmeasurable(name: str, reason: str) -> Check:
    """A line that cannot be measured here, with the reason."""
    return Check(name=name, outcome="not measurable", figure=reason)


def percent(share: float) -> str:
    """0.034 → '3.4%': two figures, and no more than 100."""
    if 0 < share < 0.0001:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def listed(names: list[str], *, most: int = 3) -> str:
    """The first few names, and the number of the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
