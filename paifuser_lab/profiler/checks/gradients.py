"""Checks of gradients: present, finite, and representable in fp16."""

from __future__ import annotations

from ...records import counted, readable_count
from .findings import LOOP_HINT, Findings, Judged, listed, percent
from .watch import GradientCounts

MAX_VANISHING = 0.05


def check_finite_gradients(findings: Findings) -> Judged | str:
    """Gradients hold no inf and no NaN."""
    gradients = findings.run.gradients
    if not gradients:
        return _why_none(findings)
    total = sum(counts.values for counts in gradients.values())
    broken = [key for key, counts in gradients.items() if counts.broken]
    share = sum(gradients[key].broken for key in broken) / max(total, 1)
    if not broken:
        return Judged(share, 0.0, f"all {_amount(total, findings)} are finite")
    figure = f"{percent(share)} of {_amount(total, findings)} are inf or NaN: {listed(broken)}"
    remedy = (
        "clip them (torch.nn.utils.clip_grad_norm_), lower the learning rate; in fp16 let "
        "torch.amp.GradScaler skip such steps"
    )
    return Judged(share, 0.0, figure, remedy)


def check_live_gradients(findings: Findings) -> Judged | str:
    """No parameter's gradient is zero at every step."""
    gradients = findings.run.gradients
    if not gradients:
        return _why_none(findings)
    dead = [
        key for key, counts in gradients.items() if counts.values and counts.zeros == counts.values
    ]
    share = len(dead) / len(gradients)
    if not dead:
        return Judged(
            share,
            0.0,
            f"each of {counted(len(gradients), 'parameter')} had a gradient other than zero",
        )
    figure = (
        f"zero at every step for {len(dead)} of {counted(len(gradients), 'parameter')}: "
        f"{listed(dead)}"
    )
    remedy = (
        "look for a ReLU that never opens, a product with zero, or fp16 without loss scaling; "
        "freeze what is not meant to learn"
    )
    return Judged(share, 0.0, figure, remedy)


def check_gradients_in_fp16(findings: Findings) -> Judged | str:
    """Gradients would neither vanish nor overflow in fp16."""
    gradients = findings.run.gradients
    if not gradients:
        return _why_none(findings)
    values = [counts for counts in gradients.values() if _nonzero(counts)]
    total = sum(map(_nonzero, values))
    vanishing = sum(counts.vanishing for counts in values)
    exceeding = sum(counts.exceeding for counts in values)
    share = vanishing / max(total, 1)
    figure = (
        f"of {readable_count(total)} gradient values other than zero, {percent(share)} would "
        "vanish in fp16 (< 6e-8)"
    )
    remedy = "stay in fp32 or bf16; for fp16 scale the loss (torch.amp.GradScaler)"
    if exceeding:
        figure = f"{figure} and {percent(exceeding / max(total, 1))} would overflow (> 65504)"
        return Judged(
            1.0, MAX_VANISHING, figure, f"{remedy} and clip (torch.nn.utils.clip_grad_norm_)"
        )
    return Judged(share, MAX_VANISHING, figure, remedy)


def _nonzero(counts: GradientCounts) -> int:
    return counts.values - counts.zeros - counts.broken


def _amount(values: int, findings: Findings) -> str:
    steps = counted(findings.run.optimizer_steps, "step")
    return f"{readable_count(values)} gradient values of {steps}"


def _why_none(findings: Findings) -> str:
    if not findings.is_loop:
        return f"a workload takes no gradients; {LOOP_HINT}"
    if findings.run.optimizer_steps:
        return "an optimizer stepped, with no gradient set"
    return "no optimizer stepped in this loop"
