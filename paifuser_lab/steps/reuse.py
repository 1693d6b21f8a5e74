"""Lets activations and sums write over an input that nobody else reads; outputs are the same."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from ..memory.reuse import Reused, reuse, run_in_place
from ..memory.sole_readers import BlockSums
from ..records import counted, readable_bytes
from .step import Draft, Step


class Reuse(Step):
    """Run every activation and residual sum in place whose input nobody reads afterwards, so that a
    call allocates less.

    That is proven twice, in the recorded run and in the graphs of the blocks; what is not proven
    stays. Calls that need gradients, or train, run as if nothing were in place.
    """

    kind: ClassVar[str] = "reuse"
    is_single: ClassVar[bool] = True
    tolerance: ClassVar[float | None] = 0.0
    is_late: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "reuse memory"

    def apply(self, draft: Draft) -> None:
        """Find activations and sums, run them in place, measure and note what stays."""
        done = reuse(draft.module, draft.work)
        draft.remembered = {"layers": list(done.plan.layers)}
        if blocks := done.plan.sums.blocks:
            draft.remembered["sums"] = {name: block.data for name, block in blocks.items()}
        draft.notes.append(_summary(done))
        apart = defaultdict(list)
        for layer, reason in (done.plan.kept | done.plan.sums.kept).items():
            apart[reason].append(layer)
        draft.notes += [_kept(layers, reason) for reason, layers in apart.items()]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Run the same activations and sums in place."""
        sums = remembered.get("sums", {})
        blocks = {name: BlockSums.of_data(block) for name, block in sums.items()}
        run_in_place(draft.module, remembered["layers"], blocks)


def _summary(done: Reused) -> str:
    plan, sums = done.plan, done.plan.sums
    total = len(plan.layers) + len(plan.kept)
    if not plan.layers and not sums.blocks:
        what = "activation or sum" if sums.total else "activation"
        return (
            f"no {what} could run in place" if total + sums.total else f"no {what} to run in place"
        )
    parts = [f"{len(plan.layers)} of {counted(total, 'activation')}"] if total else []
    parts += [f"{sums.count} of {counted(sums.total, 'sum')}"] if sums.total else []
    before, after = done.before, done.after
    return (
        f"{' and '.join(parts)} in place; buffers at once: "
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
