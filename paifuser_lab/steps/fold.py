"""Folds batch-norm into the convolution or linear layer before it; the output is the same."""

from __future__ import annotations

from typing import Any, ClassVar

from ..model.fold import fold, plan_fold
from ..quantization import trace_graph
from .step import Draft, Step


class Fold(Step):
    """Fold every batch-norm that follows a convolution or a linear layer into it."""

    kind: ClassVar[str] = "fold"
    is_single: ClassVar[bool] = True
    tolerance: ClassVar[float | None] = 1e-4

    @property
    def label(self) -> str:
        return "fold batch-norm"

    def apply(self, draft: Draft) -> None:
        """Fold what can be folded and note what stays."""
        plan = plan_fold(draft.module, trace_graph(draft.work, draft.module))
        fold(draft.module, plan.pairs)
        draft.remembered = {"pairs": [list(pair) for pair in plan.pairs]}
        none = "no batch-norm could be folded" if plan.kept else "no batch-norm to fold"
        draft.notes.append(f"folded {len(plan.pairs)} batch-norm layers" if plan.pairs else none)
        draft.notes += [
            f"batch-norm '{norm}' stays: {reason}" for norm, reason in plan.kept.items()
        ]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Fold the same pairs."""
        fold(draft.module, remembered["pairs"])
