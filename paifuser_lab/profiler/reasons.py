"""Reasons for a layer's time, each a function of a profile and a row; `FINDERS` lists them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from statistics import median
from typing import Any

from ..records import LayerProfile, Profile, Reason, counted, readable_bytes
from ..records.text import in_figures, readable_rate, three_figures
from .alternatives import MIN_RATE_RATIO
from .compared import COPIES
from .expected import expected, is_calibrated, is_foldable, is_fusable

MIN_SHARE = 0.002  # of the whole; smaller layers are only summed up
SLOW_PATH = 0.25  # of the roof, if overhead is not the cause
# times the cost of the smallest call; below it an operator's time is mostly its setup
MIN_OPERATOR_COST = 20
MIN_SPEEDUP = 1.1  # for a change of a layer to count as a help
GRAPH_ENGINE = {"cpu": "onnxruntime", "cuda": "inductor"}


def _roof(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """The limit that binds the layer, and its share of that roof."""
    share = row.roof_share or 0.0
    if _is_slow_path(profile, row):
        return
    if row.verdict == "compute" and row.gflops:
        yield Reason(
            topic="roof",
            sentence=(
                f"Limited by arithmetic: {readable_rate(row.gflops)} GFLOP/s, {share:.0%} of what "
                f"{_device(profile)}."
            ),
        )
    elif row.verdict == "memory" and row.gbs:
        cached = "; more than memory delivers: its data stay in the caches" if share > 1 else ""
        yield Reason(
            topic="roof",
            sentence=(
                f"Limited by memory: it reads and writes {readable_bytes(row.moved_bytes)} at "
                f"{readable_rate(row.gbs)} GB/s, {share:.0%} of what {_device(profile)}{cached}."
            ),
        )
    elif row.verdict == "overhead":
        calls = sum(op.calls for op in row.operators)
        yield Reason(
            topic="overhead",
            sentence=(
                f"Limited by call cost: {three_figures(row.overhead_ms)} of "
                f"{three_figures(row.self_ms)} ms are spent "
                f"around its {counted(calls, 'operator call')}; its work would take "
                f"{in_figures(row.roof_ms, 2)} ms at the ceiling."
            ),
            step=_graph_engine(profile),
            saves_ms=_engine_saves(profile, row, row.overhead_ms),
            basis="estimated",
        )


def _slow_path(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Far from every limit, overhead included: the kernel that ran is a slow path."""
    if not _is_slow_path(profile, row):
        return
    around = [
        other.self_ms
        for other in profile
        if other.kind.startswith("Conv") and other.layer != row.layer
    ]
    times = row.self_ms / (median(around) or row.self_ms) if around else 0.0
    beside = f" and costs {times:.1f} times the model's median convolution" if times > 1 else ""
    names = " and ".join(op.name for op in sorted(row.operators, key=lambda op: -op.ms)[:1])
    yield Reason(
        topic="slow path",
        sentence=(
            f"A slow path: {names} moves {readable_bytes(row.moved_bytes)} at "
            f"{readable_rate(row.gbs or 0.0)} GB/s and computes {readable_rate(row.gflops or 0.0)} "
            f"GFLOP/s, {row.roof_share:.1%} of what {_device(profile)}{beside}; overhead is not "
            "the cause."
        ),
    )


def _alternatives(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """What another layout or dtype does to the layer alone, whose time differs from that inside."""
    for tried in row.alternatives:
        ratio = tried.here_ms / tried.there_ms
        is_layout = "layout" in tried.step
        topic = "layout" if is_layout else "precision"
        name = "channels-last" if is_layout else f"in {tried.step['precision']['default']}"
        if ratio >= MIN_SPEEDUP:
            saves = row.self_ms * (1 - tried.there_ms / tried.here_ms)
            yield Reason(
                topic=topic,
                sentence=f"Timed alone, it is {ratio:.1f} × faster {name}.",
                step=tried.step,
                saves_ms=saves,
                basis="measured",
            )
        elif _matters(profile, row):
            is_slower = ratio < 1 / MIN_SPEEDUP
            times = f"{1 / ratio:.1f} × slower" if is_slower else "no faster"
            yield Reason(topic=topic, sentence=f"Timed alone, it is {times} {name}.")


def _folding(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """A batch-norm that could be folded into the layer before it."""
    if is_foldable(profile, row):
        yield Reason(
            topic="folding",
            sentence=(
                f"It only scales the output of '{row.reads_from[0]}' by constants: folded into "
                "it, it costs nothing."
            ),
            step={"fold": {}},
            saves_ms=row.self_ms,
            basis="estimated",
        )


def _fusion(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Pointwise operators whose memory traffic a fusion with the layer before would save."""
    if row.verdict == "overhead" or row.kind.startswith("BatchNorm") or "Pool" in row.kind:
        return
    passes = [
        op
        for op in row.operators
        if op.macs == 0 and 0 < op.flops <= 2 * (op.read_bytes + op.written_bytes)
    ]
    is_container = bool(profile.children(row.layer))
    if not passes or not (is_container or (len(row.reads_from) == 1 and row.macs == 0)):
        return
    moved = sum(op.read_bytes + op.written_bytes for op in passes)
    names = ", ".join(op.name for op in passes)
    subject = f"Between its layers, {names}" if is_container else "It"
    before = (
        "the layers before"
        if is_container
        else f"'{row.reads_from[0] or profile.workload}', whose output it takes,"
    )
    intensity = sum(op.flops for op in passes) / max(moved, 1)
    moved_ms = sum(op.ms for op in passes) if is_container else row.self_ms
    is_fused = profile.device == "cpu" and is_fusable(profile, row)
    yield Reason(
        topic="fusion",
        sentence=(
            f"{subject} reads and writes {readable_bytes(moved)} for {intensity:.2g} operations a "
            f"byte; fused with {before} it would move nothing."
        ),
        step={"fuse": {}} if is_fused else _graph_engine(profile),
        saves_ms=moved_ms if is_fused else _engine_saves(profile, row, moved_ms),
        basis="estimated",
    )


def _engine_saves(profile: Profile, row: LayerProfile, bound_ms: float) -> float | None:
    """What the graph engine is expected to save of the layer; None if it saves nothing."""
    if not is_calibrated(profile):
        return bound_ms
    saves_ms = expected(profile, GRAPH_ENGINE["cpu"], [row]).saves_ms
    return min(saves_ms, bound_ms) if saves_ms > 0 else None


def _conversions(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Copies that only change layout or dtype."""
    for where, owner in (("in", row), ("around", profile[profile.parent(row.layer)])):
        if where == "around" and not row.layer:
            continue
        copies = [op for op in owner.operators if op.name in COPIES]
        spent = sum(op.ms for op in copies)
        if spent > 0.1 * max(row.self_ms, 1e-9) and spent > MIN_SHARE * profile.total_ms:
            names = ", ".join(dict.fromkeys(op.name for op in copies))
            yield Reason(
                topic="conversion",
                sentence=(
                    f"{three_figures(spent)} ms go into copies {where} it ({names}): they compute "
                    "nothing and only change layout or dtype."
                ),
            )
    sources = [profile[layer] for layer in row.reads_from if layer in profile]
    if any(
        source.is_channels_last != row.is_channels_last and _is_image(source) and _is_image(row)
        for source in sources
    ):
        yield Reason(
            topic="conversion",
            sentence="Its input and its output differ in memory layout: it is converted between.",
            step={"layout": {}},
        )


def _width(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """Channels that are no multiple of the hardware's vector width."""
    step, channels = profile.vector_width, _output_channels(row)
    if row.verdict != "compute" or channels % step == 0 or not _matters(profile, row):
        return
    full = -(-channels // step) * step
    yield Reason(
        topic="width",
        sentence=(
            f"Its {channels} output channels are no multiple of {step}, the hardware's vector "
            f"width: {1 - channels / full:.1%} of its lanes are idle."
        ),
    )


def _lower_precision(profile: Profile, row: LayerProfile) -> Iterator[Reason]:
    """An fp32 layer on hardware that computes much faster in 16 bits."""
    rates = {"bf16": profile.ceiling.bf16_gflops or 0.0, "fp16": profile.ceiling.fp16_gflops or 0.0}
    name = max(rates, key=lambda name: rates[name])
    ratio = rates[name] / profile.ceiling.fp32_gflops
    is_tried = any("precision" in tried.step for tried in row.alternatives)
    if (
        row.verdict == "compute"
        and row.dtype == "float32"
        and ratio > MIN_RATE_RATIO
        and not is_tried
    ):
        yield Reason(
            topic="precision",
            sentence=(
                f"It computes in fp32, and this machine computes {ratio:.1f} × faster in {name}."
            ),
            step={"precision": {"default": name}},
            saves_ms=row.self_ms * (1 - 1 / ratio),
            basis="estimated",
        )


def _graph_engine(profile: Profile) -> dict[str, dict[str, Any]]:
    """The step with an engine that compiles the whole graph, without Python between operators."""
    kind = profile.device.split(":")[0]
    return {"backend": {"name": GRAPH_ENGINE.get(kind, "inductor")}}


def _device(profile: Profile) -> str:
    caution = f" ({profile.ceiling.caution})" if profile.ceiling.caution else ""
    limit = (
        f"{counted(profile.ceiling.threads, 'thread')} can do here"
        if profile.device == "cpu"
        else "the device can do"
    )
    return limit + caution


def _is_slow_path(profile: Profile, row: LayerProfile) -> bool:
    is_far = row.roof_share is not None and row.roof_share < SLOW_PATH
    calls = sum(op.calls for op in row.operators)
    is_work = row.self_ms > calls * MIN_OPERATOR_COST * profile.operator_us / 1e3
    return is_far and is_work and row.overhead_ms < row.self_ms / 2 and _matters(profile, row)


def _matters(profile: Profile, row: LayerProfile) -> bool:
    return row.self_ms > MIN_SHARE * profile.total_ms


def _is_image(row: LayerProfile) -> bool:
    """Whether its outputs have a distinct layout: more than one channel and one pixel."""
    shape = row.output_shapes[0] if row.output_shapes else ()
    return len(shape) == 4 and shape[1] > 1 and prod(shape[2:]) > 1


def _output_channels(row: LayerProfile) -> int:
    """The number of output channels of a layer with a weight; 0 for others."""
    if len(row.weight_shape) < 2:
        return 0
    if "Transpose" in row.kind and len(row.output_shapes) == 1:
        return row.output_shapes[0][1 - len(row.weight_shape)]
    return row.weight_shape[0]


FINDERS = (
    _roof,
    _slow_path,
    _alternatives,
    _folding,
    _fusion,
    _conversions,
    _width,
    _lower_precision,
)
