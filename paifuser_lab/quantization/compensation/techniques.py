"""The techniques, applied in turn, each with the output error before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from torch import Tensor
from torch.utils import _pytree as pytree

from ...workload import running
from .bias import correct_bias
from .context import Context, Outcome, in_place
from .equalise import equalise
from .rounding import round_adaptively
from .smooth import smooth

Technique = Literal["bias", "equalise", "smooth", "rounding"]
TECHNIQUES: dict[Technique, Callable[[Context], Outcome]] = {  # in the order in which they are done
    "equalise": equalise,
    "smooth": smooth,
    "rounding": round_adaptively,
    "bias": correct_bias,
}


def compensate(
    context: Context, wanted: Collection[Technique], example: Callable[[], Any]
) -> list[str]:
    """Apply the wanted techniques in turn; a note on each, with the output error on the example."""
    if not wanted:
        return []
    reference = _answer(context, example)
    error, notes = _error(context, example, reference), []
    for technique in (one for name, one in TECHNIQUES.items() if name in wanted):
        outcome, before = technique(context), error
        if not outcome.count:
            notes.append(f"{outcome.note}: nothing to change")
            continue
        error = _error(context, example, reference)
        notes.append(
            f"{outcome.note}: output error {before:.2g} → "
            f"{error:.2g}{', no gain here' if error >= before else ''}"
        )
    return notes


def _error(context: Context, example: Callable[[], Any], reference: list[Tensor]) -> float:
    """The relative L2 error of the model's output with the layers as they would be now."""
    with in_place(context.model, context.joined()):
        answer = _answer(context, example)
    difference = sum(
        float((one - other).square().sum()) for one, other in zip(reference, answer, strict=True)
    )
    total = sum(float(one.square().sum()) for one in reference)
    return float((difference / total if total else difference) ** 0.5)


def _answer(context: Context, example: Callable[[], Any]) -> list[Tensor]:
    with running(context.model):
        return [leaf.double() for leaf in pytree.tree_leaves(example()) if isinstance(leaf, Tensor)]
