"""How a layer changed between the baseline's profile and a variant's, and why it is not faster."""

from __future__ import annotations

from ..records import ENGINE_ROW, LayerProfile, Profile, Reason

NOISE = 0.05  # smaller changes, or ones within the spread of either, count as none
COPIES = ("_to_copy", "clone", "copy_", "contiguous")
FORMATS = {
    "bfloat16": "bf16_gflops",
    "float16": "fp16_gflops",
    "float32": "fp32_gflops",
    "int8": "int8_gops",
}


def compared_reasons(profile: Profile, row: LayerProfile, against: Profile) -> list[Reason]:
    """The change from the baseline, and the facts that kept the layer from getting faster."""
    if row.layer == ENGINE_ROW:
        return []
    if row.layer not in against:
        return [Reason(topic="change", sentence="It was not there before.")]
    before = against[row.layer]
    if row.joined_into is not None:
        return [Reason(topic="change", sentence=_joined(before, row))]
    if not all(one.quality is None or one.quality.is_quiet for one in (profile, against)):
        return [Reason(topic="change", sentence=_untold(before, row))]
    reasons = [Reason(topic="change", sentence=_change(before, row))]
    if row.total_ms >= before.total_ms * (1 - NOISE):
        reasons += [
            Reason(topic="not faster", sentence=text)
            for text in _why_not(profile, row, against, before)
        ]
    return reasons


def _joined(before: LayerProfile, row: LayerProfile) -> str:
    return (
        f"It took {before.total_ms:.3g} ms and runs inside '{row.joined_into}' now, whose row has "
        "the time of both."
    )


def _untold(before: LayerProfile, row: LayerProfile) -> str:
    if row.kind == "Identity" and before.kind != "Identity":
        return _change(before, row)
    return (
        f"It took {before.total_ms:.3g} ms and takes {row.total_ms:.3g} ms now, measured on a busy "
        "machine: whether it is faster cannot be told."
    )


def _change(before: LayerProfile, row: LayerProfile) -> str:
    if row.kind == "Identity" and before.kind != "Identity":
        return (
            f"It is gone, and its {before.self_ms:.3g} ms with it: a {before.kind} before, now "
            "folded into the layer it followed."
        )
    ratio = before.total_ms / row.total_ms if row.total_ms else 1.0
    took = f"It took {before.total_ms:.3g} ms and takes {row.total_ms:.3g} ms now"
    if abs(row.total_ms - before.total_ms) <= max(
        NOISE * before.total_ms, _spread(before), _spread(row)
    ):
        return (
            f"{took}, which differ from round to round by as much: no difference beyond the noise."
        )
    return f"{took}: {ratio:.2f} × {'faster' if ratio > 1 else 'as fast, that is slower'}."


def _spread(row: LayerProfile) -> float:
    low, high = row.total_spread_ms
    return (high - low) / 2


def _why_not(
    profile: Profile, row: LayerProfile, against: Profile, before: LayerProfile
) -> list[str]:
    """Facts that keep a changed layer from getting faster."""
    facts = []
    if row.dtype != before.dtype and row.dtype in FORMATS and before.dtype in FORMATS:
        now = getattr(profile.ceiling, FORMATS[row.dtype]) or 0.0
        then = getattr(against.ceiling, FORMATS[before.dtype]) or 0.0
        facts.append(
            f"This machine computes {now:.3g} GFLOP/s in {row.dtype} and {then:.3g} in "
            f"{before.dtype}."
        )
    copies, copied = _copies_ms(row), _copies_ms(before)
    if copies > copied + NOISE * row.total_ms:
        facts.append(
            f"{copies - copied:.3g} ms more than before go into copies: conversions of dtype or "
            "layout around it."
        )
    if row.verdict == "overhead":
        facts.append(
            f"{row.overhead_ms:.3g} of its own {row.self_ms:.3g} ms are overhead, which the change "
            "did not touch."
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
