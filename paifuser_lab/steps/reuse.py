"""Lets activations write over their input where nobody else reads it; the output is the same to the
bit.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar, Self

from ..memory.reuse import Reused, reuse, run_in_place
from ..records import counted, readable_bytes
from .step import Draft, Step


class Reuse(Step):
    """Run every activation in place whose input nobody reads afterwards, so that a call allocates
    less.

    That is proven twice, in the recorded run and in the graphs of the blocks; what is not proven
    stays. The model computes no gradients any more.
    """

    kind: ClassVar[str] = "reuse"
    tolerance: ClassVar[float | None] = 0.0
    is_late: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "reuse memory"

    def joined(self, newer: Self) -> Self | None:
        """The newer step, as nothing more can run in place the second time."""
        return newer

    def apply(self, draft: Draft) -> None:
        """Find the activations, run them in place, measure and note what stays."""
        done = reuse(draft.module, draft.work)
        draft.remembered = {"layers": list(done.plan.layers)}
        draft.notes.append(_summary(done))
        apart = defaultdict(list)
        for layer, reason in done.plan.kept.items():
            apart[reason].append(layer)
        draft.notes += [_kept(layers, reason) for reason, layers in apart.items()]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Run the same activations in place."""
        run_in_place(draft.module, remembered["layers"])


def _summary(done: Reused) -> str:
    total = len(done.plan.layers) + len(done.plan.kept)
    if not done.plan.layers:
        return "no activation could run in place" if total else "no activation to run in place"
    before, after = done.before, done.after
    return (
        f"{len(done.plan.layers)} of {counted(total, 'activation')} in place; buffers at once: "
        f"{_change(before.buffers_bytes, after.buffers_bytes)}; peak of a call with workspace "
        f"inside operators: {_change(before.peak_bytes, after.peak_bytes)}"
    )


def _change(before: int, after: int) -> str:
    if before == after:
        return f"{readable_bytes(before)} as before"
    return f"{readable_bytes(before)} → {readable_bytes(after)}"


def _kept(layers: list[str], reason: str) -> str:
    if len(layers) == 1:
        return f"'{layers[0]}' keeps its input: {reason}"
    return f"'{layers[0]}' and {len(layers) - 1} more keep their input: {reason}"
