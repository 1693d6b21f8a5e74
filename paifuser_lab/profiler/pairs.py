"""Two profiles side by side, layer by layer: matched by path, also after folding and pruning."""

from __future__ import annotations

from ..errors import MeasureError
from ..measure import Samples, ratio_of_rounds
from ..records import LayerPair, LayerProfile, Profile, Reason, SideBySide
from ..workload import Derived, Workload
from .layers import RUNS, SECONDS, profile_in_turn

Subject = Profile | Workload | Derived


def side_by_side(
    before: Subject,
    after: Subject,
    *,
    predicted: Reason | None = None,
    runs: int = RUNS,
    seconds: float = SECONDS,
) -> SideBySide:
    """Put a baseline and a variant side by side.

    Workloads and variants are profiled now, their runs in turn, and the speed-up is the ratio
    within rounds. Of two profiles only the rows are compared. `predicted` is the reason whose step
    was applied: its promise stands beside what was achieved.
    """
    if isinstance(before, Profile) and isinstance(after, Profile):
        return _pair(before, after, predicted)
    if isinstance(before, Profile) or isinstance(after, Profile):
        raise MeasureError(
            "One of the two is a profile and the other is not; give two profiles, or two things to "
            "profile in turn."
        )
    first, second = profile_in_turn([before, after], runs=runs, seconds=seconds)
    for one in (first, second):
        if one.failure:
            raise MeasureError(one.failure)
    ratio, interval = ratio_of_rounds(
        Samples(rounds_ms=list(first.rounds_ms)), Samples(rounds_ms=list(second.rounds_ms))
    )
    return _pair(first, second, predicted).model_copy(
        update={"speedup": ratio, "speedup_interval": interval}
    )


def _pair(before: Profile, after: Profile, predicted: Reason | None) -> SideBySide:
    names = dict.fromkeys([*(row.layer for row in before), *(row.layer for row in after)])
    return SideBySide(
        before=before.workload,
        after=after.workload,
        before_ms=before.latency_ms,
        after_ms=after.latency_ms,
        predicted=predicted,
        rows=tuple(_row(name, before, after) for name in names),
    )


def _row(name: str, before: Profile, after: Profile) -> LayerPair:
    one, other = before.get(name), after.get(name)
    return LayerPair(
        layer=name,
        kind_before=one.kind if one else None,
        kind_after=other.kind if other else None,
        before_ms=one.self_ms if one else None,
        after_ms=other.self_ms if other else None,
        note=_note(one, other, after),
    )


def _note(one: LayerProfile | None, other: LayerProfile | None, after: Profile) -> str:
    if one is None:
        return "new"
    if other is None:
        return f"inside {after.root.kind}" if len(after) == 1 else "gone"
    changes = []
    if other.kind == "Identity" and one.kind != "Identity":
        changes.append("folded away")
    elif other.kind != one.kind:
        changes.append(f"{one.kind} → {other.kind}")
    if other.dtype != one.dtype:
        changes.append(f"{one.dtype or 'nothing'} → {other.dtype or 'nothing'}")
    if other.is_channels_last and not one.is_channels_last:
        changes.append("channels-last")
    if other.weight_shape != one.weight_shape and one.weight_shape and other.weight_shape:
        changes.append(
            f"{'×'.join(map(str, one.weight_shape))} → {'×'.join(map(str, other.weight_shape))}"
        )
    return ", ".join(changes)
