"""Whether gradients are there, are numbers, and would survive fp16."""

from __future__ import annotations

from ...records import Check, counted, readable_count
from .findings import Findings
from .gradient_watch import GradientCounts
from .judge import LOOP_WANTED, judged, listed, percent, unmeasurable

MOST_VANISHING = 0.05


def check_finite_gradients(found: Findings) -> Check:
    """No inf and no NaN."""
    name, gradients = "finite gradients", found.seen.gradients
    if not gradients:
        return unmeasurable(name, _why_none(found))
    total, broken = (
        sum(one.values for one in gradients.values()),
        [key for key, one in gradients.items() if one.broken],
    )
    share = sum(gradients[key].broken for key in broken) / max(total, 1)
    if not broken:
        return judged(name, share, 0.0, f"all {_amount(total, found)} are finite")
    figure = f"{percent(share)} of {_amount(total, found)} are inf or NaN: {listed(broken)}"
    remedy = (
        "clip them (torch.nn.utils.clip_grad_norm_), lower the learning rate; in fp16 let "
        "torch.amp.GradScaler skip such steps"
    )
    return judged(name, share, 0.0, figure, remedy)


def check_live_gradients(found: Findings) -> Check:
    """No parameter whose gradient is zero at every step."""
    name, gradients = "live gradients", found.seen.gradients
    if not gradients:
        return unmeasurable(name, _why_none(found))
    dead = [key for key, one in gradients.items() if one.values and one.zeros == one.values]
    share = len(dead) / len(gradients)
    if not dead:
        return judged(
            name,
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
    return judged(name, share, 0.0, figure, remedy)


def check_gradients_in_fp16(found: Findings) -> Check:
    """Whether gradients would vanish or overflow in half precision."""
    name, gradients = "gradients in fp16", found.seen.gradients
    if not gradients:
        return unmeasurable(name, _why_none(found))
    values = [one for one in gradients.values() if _nonzero(one)]
    total = sum(map(_nonzero, values))
    vanishing, exceeding = (
        sum(one.vanishing for one in values),
        sum(one.exceeding for one in values),
    )
    share = vanishing / max(total, 1)
    figure = (
        f"of {readable_count(total)} gradient values other than zero, {percent(share)} would "
        "vanish in fp16 (< 6e-8)"
    )
    remedy = "stay in fp32 or bf16; for fp16 scale the loss (torch.amp.GradScaler)"
    if exceeding:
        figure = f"{figure} and {percent(exceeding / max(total, 1))} would overflow (> 65504)"
        return judged(
            name, 1.0, MOST_VANISHING, figure, f"{remedy} and clip (torch.nn.utils.clip_grad_norm_)"
        )
    return judged(name, share, MOST_VANISHING, figure, remedy)


def _nonzero(one: GradientCounts) -> int:
    return one.values - one.zeros - one.broken


def _amount(values: int, found: Findings) -> str:
    return (
        f"{readable_count(values)} gradient values of {counted(found.seen.optimizer_steps, 'step')}"
    )


def _why_none(found: Findings) -> str:
    if not found.is_loop:
        return f"a workload takes no gradients; {LOOP_WANTED}"
    return (
        "an optimizer stepped, with no gradient set"
        if found.seen.optimizer_steps
        else "no optimizer stepped in this loop"
    )
