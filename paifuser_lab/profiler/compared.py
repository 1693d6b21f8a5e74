"""Two profiles, layers matched by path: side by side, what changed, and why it is no faster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..engines.engine import Engine
from ..errors import MeasureError
from ..measure import Samples, output_error, ratio_of_rounds
from ..model.watch import FAILED, watching
from ..records import (
    ENGINE_ROW,
    LayerPair,
    LayerProfile,
    Profile,
    Reason,
    SideBySide,
    readable_ms,
)
from ..records.hardware import rate_field
from ..records.quality import worse
from ..records.text import readable_rate, three_figures
from ..workload import Derived, Workload, running, workload_of
from .layers import RUNS, SECONDS, profile_in_turn

FALLS = 4  # an error that falls by more at the next layer is of another output, not a loss
NOISE = 0.05  # smaller changes, or ones within the spread of either, count as none
COPIES = ("_to_copy", "clone", "copy_", "contiguous")
Subject = Profile | Workload | Derived


def compared_reasons(profile: Profile, row: LayerProfile, against: Profile) -> list[Reason]:
    """The change from the baseline, and the facts that kept the layer from getting faster."""
    if row.layer == ENGINE_ROW:
        return []
    if row.layer not in against:
        return [Reason(topic="change", sentence="It was not there before.")]
    before = against[row.layer]
    if sentence := _without_time(before, row):
        return [Reason(topic="change", sentence=sentence)]
    if not all(one.quality is None or one.quality.is_quiet for one in (profile, against)):
        return [Reason(topic="change", sentence=_untold(before, row))]
    reasons = [Reason(topic="change", sentence=_change(before, row))]
    if row.total_ms >= before.total_ms * (1 - NOISE):
        reasons += [
            Reason(topic="not faster", sentence=text)
            for text in _why_not(profile, row, against, before)
        ]
    return reasons


def _without_time(before: LayerProfile, row: LayerProfile) -> str:
    """What became of a layer that is gone, or has no time of its own in an engine; else ''."""
    is_timed = "self_ms" not in before.unknown_why
    took = f"It took {readable_ms(before.total_ms)} ms" if is_timed else "It had no time of its own"
    if row.joined_into is not None:
        return f"{took} and runs inside '{row.joined_into}' now, whose row has the time of both."
    if row.kind == "Identity" and before.kind != "Identity":
        return (
            f"It is gone, and its {readable_ms(before.self_ms)} ms with it: a {before.kind} "
            "before, now folded into the layer it followed."
        )
    if (why := row.unknown_why.get("self_ms")) is not None:
        return f"{took} before; now {why}."
    return "" if is_timed else f"{took} before, and takes {readable_ms(row.total_ms)} ms now."


def _untold(before: LayerProfile, row: LayerProfile) -> str:
    return (
        f"It took {readable_ms(before.total_ms)} ms and takes {readable_ms(row.total_ms)} ms now, "
        "timed too roughly: whether it is faster cannot be told."
    )


def _change(before: LayerProfile, row: LayerProfile) -> str:
    took = f"It took {readable_ms(before.total_ms)} ms and takes {readable_ms(row.total_ms)} ms now"
    if abs(row.total_ms - before.total_ms) <= max(
        NOISE * before.total_ms, _spread(before), _spread(row)
    ):
        return (
            f"{took}, which differ from round to round by as much: no difference beyond the noise."
        )
    if not row.total_ms:
        return f"It took {readable_ms(before.total_ms)} ms, and no time is measured in it now."
    ratio = before.total_ms / row.total_ms
    return f"{took}: {ratio:.2f} × {'faster' if ratio > 1 else 'as fast, that is slower'}."


def _spread(row: LayerProfile) -> float:
    low, high = row.total_spread_ms
    return (high - low) / 2


def _why_not(
    profile: Profile, row: LayerProfile, against: Profile, before: LayerProfile
) -> list[str]:
    """Facts that keep a changed layer from getting faster."""
    facts = []
    now, then = profile.ceiling.rate(row.dtype), against.ceiling.rate(before.dtype)
    is_known = rate_field(row.dtype) and rate_field(before.dtype)
    if row.dtype != before.dtype and is_known:
        facts.append(
            f"This machine computes {readable_rate(now or 0.0)} GFLOP/s in {row.dtype} and "
            f"{readable_rate(then or 0.0)} in {before.dtype}."
        )
    copies, copied = _copies_ms(row), _copies_ms(before)
    if copies > copied + NOISE * row.total_ms:
        facts.append(
            f"{three_figures(copies - copied)} ms more than before go into copies: conversions of "
            "dtype or layout around it."
        )
    if row.verdict == "overhead":
        facts.append(
            f"{three_figures(row.overhead_ms)} of its own {readable_ms(row.self_ms)} ms are "
            "overhead, which the change did not touch."
        )
    elif row.moved_bytes >= before.moved_bytes and row.verdict == "memory":
        facts.append("It is limited by memory, and moves as many bytes as before.")
    if row.flops >= before.flops and row.verdict == "compute" and row.dtype == before.dtype:
        facts.append(
            "It is limited by arithmetic, and computes as much as before in the same dtype."
        )
    return facts


def _copies_ms(row: LayerProfile) -> float:
    return sum(op.ms for op in row.operators if op.name in COPIES)


def explain(
    before: Subject,
    after: Subject,
    *,
    predicted: Reason | None = None,
    runs: int = RUNS,
    seconds: float = SECONDS,
) -> SideBySide:
    """Why one of two is faster, and where it loses accuracy: their layers side by side, with what
    each runs as, what changed, and how far its output is from the one before.

    Workloads and variants are profiled now, their runs in turn, and the speed-up is the ratio
    within rounds. In ONNX Runtime and OpenVINO a layer has the kernel of the node that it leads. Of
    two profiles only the rows are compared. `predicted` is the reason whose step was applied: its
    estimate is shown beside the result.
    """
    if isinstance(before, Profile) and isinstance(after, Profile):
        return _pair(before, after, predicted)
    if isinstance(before, Profile) or isinstance(after, Profile):
        raise MeasureError(
            "One of the two is a profile and the other is not; give two profiles, or two "
            "workloads or variants to profile in turn."
        )
    first, second = profile_in_turn([before, after], runs=runs, seconds=seconds)
    ratio, interval = ratio_of_rounds(
        Samples(rounds_ms=list(first.rounds_ms)), Samples(rounds_ms=list(second.rounds_ms))
    )
    errors = output_errors(workload_of(before), workload_of(after))
    return _pair(first, second, predicted, errors).model_copy(
        update={"speedup": ratio, "speedup_interval": interval}
    )


def _pair(
    before: Profile, after: Profile, predicted: Reason | None, errors: Mapping[str, float] = {}
) -> SideBySide:
    names = dict.fromkeys([*(row.layer for row in before), *(row.layer for row in after)])
    added = added_errors(errors, before)
    return SideBySide(
        before=before.workload,
        after=after.workload,
        before_ms=before.latency_ms,
        after_ms=after.latency_ms,
        predicted=predicted,
        rows=tuple(
            _row(name, before, after).model_copy(
                update={"output_error": errors.get(name), "error_added": added.get(name)}
            )
            for name in names
        ),
        is_interrupted=before.is_interrupted or after.is_interrupted,
        quality=worse(before.quality, after.quality),
    )


def _row(name: str, before: Profile, after: Profile) -> LayerPair:
    old, new = before.get(name), after.get(name)
    return LayerPair(
        layer=name,
        kind_before=old.kind if old else None,
        kind_after=new.kind if new else None,
        before_ms=old.self_ms if old else None,
        after_ms=new.self_ms if new else None,
        ran_as=_runs_as(old),
        runs_as=_runs_as(new),
        note=_note(old, new, after),
    )


def _runs_as(row: LayerProfile | None) -> str:
    """The costliest kernel of a layer, in torch its costliest operator."""
    parts = [(part.ms, part.name) for part in (row.kernels or row.operators)] if row else []
    return max(parts)[1] if parts else ""


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


def output_errors(before: Workload, after: Workload) -> dict[str, float]:
    """Layer → relative L2 error of its output for the same inputs, in the order of calls.

    A layer is compared where both models have it and it computes the same: not where the next one
    was folded or fused into it, or in int8 its activation.
    """
    references, outputs = _outputs(before), _outputs(after)
    errors = {
        layer: output_error(references[layer], outputs[layer])[0]
        for layer in outputs.keys() & references.keys()
        if _shapes(references[layer]) == _shapes(outputs[layer])
    }
    absorbed = references.keys() - outputs.keys() | _identities(after) - _identities(before)
    following = dict(pairwise(references))
    return {
        layer: error
        for layer in references
        if (error := errors.get(layer)) is not None
        and (follower := following.get(layer, "")) not in absorbed
        and error <= FALLS * errors.get(follower, error)
    }


def added_errors(errors: Mapping[str, float], profile: Profile) -> dict[str, float]:
    """Layer → the error of its output beyond that of its inputs."""

    def of_inputs(layer: str, seen: set[str]) -> float:
        new = {one for one in profile[layer].reads_from if one in profile} - seen
        seen |= new  # a layer that is called again may read what it made
        return max(
            (errors[one] if one in errors else of_inputs(one, seen) for one in new), default=0.0
        )

    return {
        layer: error - of_inputs(layer, {layer})
        for layer, error in errors.items()
        if layer and layer in profile and profile[layer].kind != "Identity"
    }


def _identities(work: Workload) -> set[str]:
    modules = _layered(work).named_modules()
    return {name for name, module in modules if isinstance(module, nn.Identity)}


def _layered(work: Workload) -> nn.Module:
    """The model with the layers: of an engine, the one that it runs."""
    return work.model.module if isinstance(work.model, Engine) else work.model


def _outputs(work: Workload) -> dict[str, list[Tensor]]:
    """What each layer without layers of its own returns, a tensor a call; '' is the model."""
    model, inputs = _layered(work), work.inputs.clone()
    leaves = {name for name, module in model.named_modules() if not any(module.children())}
    outputs: defaultdict[str, list[Tensor]] = defaultdict(list)

    def leave(layer: str, output: Any) -> None:
        if output is not FAILED and isinstance(output, Tensor) and (layer in leaves or not layer):
            outputs[layer].append(output.detach().clone())  # a later layer may write over it

    with running(model), watching(model, lambda layer, args, kwargs: None, leave):
        inputs(model)
    return outputs


def _shapes(tensors: list[Tensor]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors]
