"""Which techniques there are, and doing the wanted ones in turn, each measured before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from torch import Tensor
from torch.utils import _pytree as pytree

from ...workload import running
from .bias import correct_bias
from .context import Done, Scene, in_place
from .equalise import equalise
from .rounding import round_adaptively
from .smooth import smooth

Technique = Literal["bias", "equalise", "smooth", "rounding"]
TECHNIQUES: dict[Technique, Callable[[Scene], Done]] = {  # in the order in which they are done
    "equalise": equalise,
    "smooth": smooth,
    "rounding": round_adaptively,
    "bias": correct_bias,
}


def compensate(
    scene: Scene, wanted: Collection[Technique], example: Callable[[], Any]
) -> list[str]:
    """Do the wanted techniques one after the other; what each did, and what it gained in the answer
    to the example.
    """
    if not wanted:
        return []
    reference = _answer(scene, example)
    error, notes = _error(scene, example, reference), []
    for technique in (one for name, one in TECHNIQUES.items() if name in wanted):
        done, before = technique(scene), error
        if not done.count:
            notes.append(f"{done.sentence}: nothing to change")
            continue
        error = _error(scene, example, reference)
        notes.append(
            f"{done.sentence}: output error {before:.2g} → "
            f"{error:.2g}{', no gain here' if error >= before else ''}"
        )
    return notes


def _error(scene: Scene, example: Callable[[], Any], reference: list[Tensor]) -> float:
    """The relative L2 error of the model's answer with the layers as they would be now."""
    with in_place(scene.model, scene.joined()):
        answer = _answer(scene, example)
    difference = sum(
        float((one - other).square().sum()) for one, other in zip(reference, answer, strict=True)
    )
    total = sum(float(one.square().sum()) for one in reference)
    return float((difference / total if total else difference) ** 0.5)


def _answer(scene: Scene, example: Callable[[], Any]) -> list[Tensor]:
    with running(scene.model):
        return [leaf.double() for leaf in pytree.tree_leaves(example()) if isinstance(leaf, Tensor)]
