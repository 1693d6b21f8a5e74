"""Two profiles side by side, layer by layer: matched by path, also after folding and pruning."""

from __future__ import annotations

from ..errors import MeasureError
from ..measure import Samples, ratio_of_rounds
from ..records import ENGINE_ROW, LayerPair, LayerProfile, Profile, Reason, SideBySide
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
    was applied: its estimate is shown beside the result.
    """
    if isinstance(before, Profile) and isinstance(after, Profile):
        return _pair(before, after, predicted)
    if isinstance(before, Profile) or isinstance(after, Profile):
        raise MeasureError(
            "One of the two is a profile and the other is not; give two profiles, or two "
            "workloads or variants to profile in turn."
        )
    first, second = profile_in_turn([before, after], runs=runs, seconds=seconds)
    for profile in (first, second):
        if profile.failure:
            raise MeasureError(profile.failure)
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
    old, new = before.get(name), after.get(name)
    return LayerPair(
        layer=name,
        kind_before=old.kind if old else None,
        kind_after=new.kind if new else None,
        before_ms=old.self_ms if old else None,
        after_ms=new.self_ms if new else None,
        note=_note(old, new, after),
    )


def _note(old: LayerProfile | None, new: LayerProfile | None, after: Profile) -> str:
    if old is None:
        return "in no layer's node" if new is not None and new.layer == ENGINE_ROW else "new"
    if new is None:
        return f"inside {after.root.kind}" if len(after) == 1 else "gone"
    if new.joined_into is not None:
        return f"joined into {new.joined_into}"
    changes = []
    if new.kind == "Identity" and old.kind != "Identity":
        changes.append("folded away")
    elif new.kind != old.kind:
        changes.append(f"{old.kind} → {new.kind}")
    if new.dtype != old.dtype:
        changes.append(f"{old.dtype or 'nothing'} → {new.dtype or 'nothing'}")
    if new.is_channels_last and not old.is_channels_last:
        changes.append("channels-last")
    if new.weight_shape != old.weight_shape and old.weight_shape and new.weight_shape:
        changes.append(
            f"{'×'.join(map(str, old.weight_shape))} → {'×'.join(map(str, new.weight_shape))}"
        )
    return ", ".join(changes)
