"""The rows of `lab.status()`: each switch of a loop, whether it is in force, and why."""

from __future__ import annotations

from typing import Any

from ..records import SwitchState, SwitchStatus
from .loop import Loop
from .race import Verdict
from .switches import Switch


def row_of(loop: Loop, label: str, switch: Switch) -> SwitchStatus:
    """A switch as it is now, with the measurement that decided it."""
    state, why = _state(loop, label, switch)
    verdict = loop.judge.verdicts.get(label) if loop.judge else None
    return SwitchStatus(name=label, state=state, why=why, **_figures(verdict))


def _state(loop: Loop, label: str, switch: Switch) -> tuple[SwitchState, str]:
    """Whether it is in force, and why."""
    if label in loop.obstacles:
        return "not offered", loop.obstacles[label]
    if loop.stopped:
        return "taken back", loop.stopped
    if not switch.is_judged:
        return ("on" if label in loop.on else "waiting"), switch.why()
    if loop.judge is None:
        return "waiting", ""
    later = f"judging goes on at step {loop.judge.goes_on_at:,}" if _is_waiting(loop) else ""
    if label in loop.judge.names_waiting:
        before = loop.judge.verdicts.get(label)
        again = f"{before.why}; it is tried again" if before is not None else ""
        return "waiting", "; ".join(filter(None, (again, later)))
    race = loop.judge.race
    is_racing = race is not None and any(
        label in way - race.reference for way in race.ways if way not in race.dropped
    )
    if is_racing:
        return ("on" if label in loop.on and later else "judging"), later
    verdict = loop.judge.verdicts.get(label)
    if verdict is None:
        return "waiting", "" if label in loop.judge.offers else switch.why()
    extra = f"; {switch.why()}" if verdict.is_kept and switch.why() else ""
    return ("on" if verdict.is_kept else "taken back"), verdict.why + extra


def _is_waiting(loop: Loop) -> bool:
    return loop.judge is not None and loop.judge.is_waiting(loop.steps)


def _figures(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {}
    return {
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "without_steps_per_s": 1 / verdict.without_s if verdict.without_s else None,
        "with_steps_per_s": 1 / verdict.with_s if verdict.with_s else None,
        "without_bytes": verdict.without_bytes,
        "with_bytes": verdict.with_bytes,
    }
