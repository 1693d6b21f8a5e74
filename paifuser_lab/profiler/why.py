"""Why a layer is not faster: sentences from what its profile holds, each with the step that would
help and what it would save.

A reason is one function of a profile and a row in `FINDERS`; whatever has parts is explained by the
sum over them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from statistics import median
from typing import Any

from ..errors import MeasureError
from ..records import Basis, Explanation, LayerProfile, Profile, Reason, counted, readable_bytes
from .advice import is_applied
from .alternatives import WORTH
from .compared import COPIES, compared_reasons

FACTS = ("roof", "overhead", "slow path", "width", "conversion")  # told before what was tried
MATTERS = 0.002  # of the whole; below that a layer is only summed up
SLOW_PATH = 0.25  # of the roof, without the calling being to blame
# times what calling the smallest costs; operators set themselves up, and below that it is all they
# do
A_REAL_OPERATOR = 20
MOSTLY = 0.8
CLEARLY = 1.1  # times faster, before a change of a layer is called a help
NORMALISED = ("Conv", "Linear")
FUSED = (
    "ReLU",
    "ReLU6",
    "SiLU",
    "GELU",
    "Hardswish",
    "Hardsigmoid",
    "Sigmoid",
    "Tanh",
)  # by a step, with the layer before
GRAPH_ENGINE = {"cpu": "onnxruntime", "cuda": "inductor"}


def explain(profile: Profile, layer: str = "", *, against: Profile | None = None) -> Explanation:
    """Say why a layer, a part, or the whole model (the default) takes as long as it does, and what
    would help.

    `against` is the baseline's profile where `profile` is a variant's: then also what the change
    did to the layer.
    """
    if layer not in profile:
        raise MeasureError(_unknown(profile, layer, against))
    row = profile[layer]
    below = profile.children(layer)
    changed = compared_reasons(profile, row, against) if against is not None else []
    own = sorted(_reasons(profile, row), key=lambda reason: reason.topic not in FACTS)
    summed = _summed(profile, layer) if below else []
    return Explanation(
        workload=profile.workload,
        layer=layer,
        kind=row.kind,
        ms=row.total_ms if below else row.self_ms,
        share=row.share,
        reasons=(
            *changed,
            *(_where(profile, row) if below else []),
            *(summed or own),
            *_overlap(summed),
        ),
    )


def _unknown(profile: Profile, layer: str, against: Profile | None) -> str:
    if against is not None and layer in against and len(profile) == 1:
        return f"{profile.workload} is run whole by {profile.root.kind}, so that '{layer}' cannot be seen in it; explain the whole."
    near = [row.layer for row in profile if layer and layer.split(".")[-1] in row.layer][:3]
    return f"No layer '{layer}' ran in {profile.workload}" + (
        f"; did you mean {', '.join(near)}?" if near else "."
    )


def _reasons(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """The facts, each with its step unless the model has that already."""
    for find in FINDERS:
        for reason in find(profile, row):
            yield (
                reason.without_step
                if reason.step and is_applied(reason.step, profile.applied)
                else reason
            )


def _roof(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """By what it is bound, and how far it is from there."""
    share = row.roof_share or 0.0
    if _is_slow_path(profile, row):
        return
    if row.verdict == "compute" and row.gflops:
        yield Reason(
            topic="roof",
            sentence=f"Bound by computing: {row.gflops:.3g} GFLOP/s, {share:.0%} of what {_device(profile)}.",
        )
    elif row.verdict == "memory" and row.gbs:
        cached = "; more than memory gives, its data stay in the caches" if share > 1 else ""
        yield Reason(
            topic="roof",
            sentence=f"Bound by memory: it moves {readable_bytes(row.moved_bytes)} at {row.gbs:.3g} GB/s, "
            f"{share:.0%} of what {_device(profile)}{cached}.",
        )
    elif row.verdict == "overhead":
        calls = sum(one.calls for one in row.operators)
        yield Reason(
            topic="overhead",
            sentence=f"Too small for what calling it costs: {row.overhead_ms:.3g} of {row.self_ms:.3g} ms are spent around its "
            f"{counted(calls, 'operator call')}; its work would take {row.roof_ms:.2g} ms at the roof.",
            step=_graph_engine(profile),
            saves_ms=row.overhead_ms,
            basis="estimated",
        )


def _slow_path(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Far from every limit, the cost of calling included: what ran is a slow path."""
    if not _is_slow_path(profile, row):
        return
    around = [
        one.self_ms for one in profile if one.kind.startswith("Conv") and one.layer != row.layer
    ]
    times = row.self_ms / (median(around) or row.self_ms) if around else 0.0
    beside = f" and costs {times:.1f} times the model's middle convolution" if times > 1 else ""
    names = " and ".join(one.name for one in sorted(row.operators, key=lambda one: -one.ms)[:1])
    yield Reason(
        topic="slow path",
        sentence=f"A slow path: {names} moves {readable_bytes(row.moved_bytes)} at {row.gbs or 0.0:.3g} GB/s and computes "
        f"{row.gflops or 0.0:.3g} GFLOP/s, {row.roof_share:.1%} of what {_device(profile)}{beside}; calling it is not to blame.",
    )


def _alternatives(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """What was tried on the layer alone."""
    for one in row.alternatives:
        ratio = one.here_ms / one.there_ms
        is_layout = "layout" in one.step
        topic = "layout" if is_layout else "number format"
        name = "channels-last" if is_layout else f"in {one.step['precision']['default']}"
        told = f"Alone it takes {one.there_ms:.3g} ms {name} and {one.here_ms:.3g} ms as it is"
        if ratio >= CLEARLY:
            saves = row.self_ms * (1 - one.there_ms / one.here_ms)
            yield Reason(
                topic=topic,
                sentence=f"{told}: {ratio:.1f} × faster.",
                step=one.step,
                saves_ms=saves,
                basis="measured",
            )
        elif _matters(profile, row):
            yield Reason(
                topic=topic, sentence=f"{told}: {'slower' if ratio < 1 / CLEARLY else 'no help'}."
            )


def _folding(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """A batch-norm that could be part of the layer before it."""
    if (
        not row.kind.startswith("BatchNorm")
        or len(row.reads_from) != 1
        or row.reads_from[0] not in profile
    ):
        return
    before = profile[row.reads_from[0]]
    readers = [one.layer for one in profile if before.layer in one.reads_from]
    if max(before.calls, row.calls) > 1:
        return
    if before.kind.startswith(NORMALISED) and readers == [row.layer]:
        sentence = f"It only scales what '{before.layer}' gives, by numbers known beforehand: folded into it, it costs nothing."
        yield Reason(
            topic="folding",
            sentence=sentence,
            step={"fold": {}},
            saves_ms=row.self_ms,
            basis="estimated",
        )


def _fusion(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Pointwise work that passes over memory once more, where whoever came before it had the
    numbers at hand.
    """
    if row.verdict == "overhead" or row.kind.startswith("BatchNorm") or "Pool" in row.kind:
        return
    passes = [
        one
        for one in row.operators
        if one.macs == 0 and 0 < one.flops <= 2 * (one.read_bytes + one.written_bytes)
    ]
    is_container = bool(profile.children(row.layer))
    if not passes or not (is_container or (len(row.reads_from) == 1 and row.macs == 0)):
        return
    moved = sum(one.read_bytes + one.written_bytes for one in passes)
    names = ", ".join(one.name for one in passes)
    what = f"Between its layers, {names}" if is_container else "It"
    before = (
        "the layers before"
        if is_container
        else f"'{row.reads_from[0] or profile.workload}', whose answer it takes,"
    )
    yield Reason(
        topic="fusion",
        sentence=f"{what} reads and writes {readable_bytes(moved)} for {sum(one.flops for one in passes) / max(moved, 1):.2g} "
        f"operations a byte; fused with {before} it would move nothing.",
        step={"fuse": {}} if _is_fused(profile, row) else _graph_engine(profile),
        saves_ms=sum(one.ms for one in passes) if is_container else row.self_ms,
        basis="estimated",
    )


def _is_fused(profile: Profile, row: LayerProfile) -> bool:
    """Whether the step `fuse` makes it one with the layer before."""
    return (
        profile.device == "cpu"
        and row.kind in FUSED
        and profile[row.reads_from[0]].kind.startswith(NORMALISED)
    )


def _conversions(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Copies that only change layout or number format."""
    for place, owner in (("in", row), ("around", profile[profile.parent(row.layer)])):
        if place == "around" and not row.layer:
            continue
        copies = [one for one in owner.operators if one.name in COPIES]
        spent = sum(one.ms for one in copies)
        if spent > 0.1 * max(row.self_ms, 1e-9) and spent > MATTERS * profile.total_ms:
            names = ", ".join(dict.fromkeys(one.name for one in copies))
            sentence = f"{spent:.3g} ms go into copies {place} it ({names}): they compute nothing, and only change layout or number format."
            yield Reason(topic="conversion", sentence=sentence)
    sources = [profile[one] for one in row.reads_from if one in profile]
    if any(
        one.is_channels_last != row.is_channels_last and _is_image(one) and _is_image(row)
        for one in sources
    ):
        yield Reason(
            topic="conversion",
            sentence="Its input is laid out otherwise than its answer: somewhere in between it is converted.",
            step={"layout": {}},
        )


def _width(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Channels that do not fill the hardware's step."""
    step, channels = profile.vector_width, _output_channels(row)
    if row.verdict != "compute" or channels % step == 0 or not _matters(profile, row):
        return
    full = -(-channels // step) * step
    yield Reason(
        topic="width",
        sentence=f"Its {channels} output channels are no multiple of {step}, the hardware's step: "
        f"{1 - channels / full:.1%} of its work is idle.",
    )


def _number_format(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Hardware that computes much faster in 16 bits than the layer uses it."""
    rates = {"bf16": profile.ceiling.bf16_gflops or 0.0, "fp16": profile.ceiling.fp16_gflops or 0.0}
    name = max(rates, key=lambda one: rates[one])
    ratio = rates[name] / profile.ceiling.fp32_gflops
    is_tried = any("precision" in one.step for one in row.alternatives)
    if row.verdict == "compute" and row.dtype == "float32" and ratio > WORTH and not is_tried:
        yield Reason(
            topic="number format",
            sentence=f"It computes in fp32, and this machine computes {ratio:.1f} × faster in {name}.",
            step={"precision": {"default": name}},
            saves_ms=row.self_ms * (1 - 1 / ratio),
            basis="estimated",
        )


FINDERS = (
    _roof,
    _slow_path,
    _alternatives,
    _folding,
    _fusion,
    _conversions,
    _width,
    _number_format,
)


def _where(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Where a part's time goes: its costliest layers, and what binds them."""
    inside = [one for _, one in profile.walk(row.layer)]
    first = sorted(inside, key=lambda one: -one.self_ms)[:3]
    names = ", ".join(f"'{one.layer or profile.workload}' {one.self_ms:.3g} ms" for one in first)
    bound: dict[str, float] = defaultdict(float)
    for one in inside:
        bound[one.verdict or "overhead"] += one.self_ms
    shares = ", ".join(
        f"{ms / (row.total_ms or 1.0):.0%} {name}"
        for name, ms in sorted(bound.items(), key=lambda pair: -pair[1])
    )
    yield Reason(topic="where", sentence=f"Most is spent in {names}; bound by: {shares}.")


def _summed(profile: Profile, layer: str) -> list[Reason]:
    """For each step that would help layers inside, what it is worth over all of them, the best
    first.

    Where the step was tried on a layer, what was measured counts, a loss too; elsewhere what is
    estimated.
    """
    steps: dict[str, _Worth] = {}
    for _, row in profile.walk(layer):
        for reason in _reasons(profile, row):
            if reason.step and reason.saves_ms is not None:
                worth = steps.setdefault(repr(reason.step), _Worth(reason.step))
                worth.topics.setdefault(reason.topic)
                worth.estimated[row.layer] = max(
                    worth.estimated.get(row.layer, 0.0), reason.saves_ms
                )
    for _, row in profile.walk(layer):
        for one in row.alternatives:
            if repr(one.step) in steps:
                steps[repr(one.step)].measured[row.layer] = row.self_ms * (
                    1 - one.there_ms / one.here_ms
                )
    return sorted(
        (worth.reason(profile) for worth in steps.values()), key=lambda one: -(one.saves_ms or 0.0)
    )


@dataclass
class _Worth:
    """What a step is worth to each of some layers."""

    step: dict[str, dict[str, Any]]
    topics: dict[str, None] = field(default_factory=dict)
    estimated: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)

    def reason(self, profile: Profile) -> Reason:
        """One sentence for all of them."""
        saves = self.estimated | self.measured
        winners = sorted(
            (layer for layer in saves if saves[layer] > 0), key=lambda layer: -saves[layer]
        )
        names = ", ".join(
            f"'{layer or profile.workload}' {saves[layer]:.3g}" for layer in winners[:3]
        )
        more = f" and {len(winners) - 3} more" if len(winners) > 3 else ""
        loss = -sum(ms for ms in saves.values() if ms < 0)
        less = (
            f", less {loss:.3g} ms that it would cost others"
            if loss > MATTERS * profile.total_ms
            else ""
        )
        topics = " and ".join(self.topics).capitalize()
        return Reason(
            topic=" and ".join(self.topics),
            sentence=f"{topics}: {counted(len(winners), 'layer')} ({names} ms{more}){less}.",
            step=self.step,
            saves_ms=sum(saves.values()),
            basis=self._basis(saves),
        )

    def _basis(self, saves: dict[str, float]) -> Basis:
        """Measured where all of it was, mostly where little is left to guessing."""
        measured, whole = (
            sum(abs(ms) for ms in self.measured.values()),
            sum(abs(ms) for ms in saves.values()),
        )
        if set(saves) == set(self.measured):
            return "measured"
        return "mostly measured" if measured > MOSTLY * whole else "estimated"


def _overlap(steps: list[Reason]) -> Iterator[Reason]:
    if sum(one.saves_ms is not None and one.saves_ms > 0 for one in steps) > 1:
        yield Reason(
            topic="overlap",
            sentence="Different steps may save the same milliseconds: their savings do not add up.",
        )


def _graph_engine(profile: Profile) -> dict[str, dict[str, Any]]:
    """An engine that sees the whole graph: it fuses, and calls nothing through Python."""
    kind = profile.device.split(":")[0]
    return {"backend": {"name": GRAPH_ENGINE.get(kind, "inductor")}}


def _device(profile: Profile) -> str:
    caution = f" ({profile.ceiling.caution})" if profile.ceiling.caution else ""
    what = (
        f"{counted(profile.threads, 'thread')} can do here"
        if profile.device == "cpu"
        else "the device can do"
    )
    return what + caution


def _is_slow_path(profile: Profile, row: LayerProfile) -> bool:
    far = row.roof_share is not None and row.roof_share < SLOW_PATH
    calls = sum(one.calls for one in row.operators)
    is_work = row.self_ms > calls * A_REAL_OPERATOR * profile.operator_us / 1e3
    return far and is_work and row.overhead_ms < row.self_ms / 2 and _matters(profile, row)


def _matters(profile: Profile, row: LayerProfile) -> bool:
    return row.self_ms > MATTERS * profile.total_ms


def _is_image(row: LayerProfile) -> bool:
    """Whether it gives images whose layout can be told: with one channel, or one pixel, both are
    the same.
    """
    shape = row.output_shapes[0] if row.output_shapes else ()
    return len(shape) == 4 and shape[1] > 1 and prod(shape[2:]) > 1


def _output_channels(row: LayerProfile) -> int:
    """How many channels a layer with a weight gives; 0 for others."""
    if len(row.weight_shape) < 2:
        return 0
    is_transposed = "Transpose" in row.kind and len(row.output_shapes) == 1
    return (
        row.output_shapes[0][2 - len(row.weight_shape) - 1]
        if is_transposed
        else row.weight_shape[0]
    )
