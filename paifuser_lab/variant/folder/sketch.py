"""A model's output as a few numbers that keep distances: a random projection (Johnson and
Lindenstrauss 1984).
"""

from __future__ import annotations

import math

import numpy
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...model.weights import answer_hash
from ...records import Sketch
from ...workload import Workload, running

SHADOWS = 32
MOST_NUMBERS = 1 << 14  # of one tensor


def sketch_of(work: Workload, model: nn.Module) -> Sketch | None:
    """The answer to the example inputs; None for a model that does not give it twice."""
    with running(model):
        answer, again = (work.inputs.clone()(model) for _ in range(2))
    if answer_hash(answer) != answer_hash(again):
        return None
    leaves = [leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, Tensor)]
    rows = [_numbers(leaf) for leaf in leaves]
    return Sketch(
        inputs=answer_hash(work.inputs.tensors),
        answer=answer_hash(answer),
        norms=tuple(float(row.norm()) for row in rows),
        shapes=tuple(tuple(leaf.shape) for leaf in leaves),
        shadows=tuple(tuple((_signs(len(row)) @ row).tolist()) for row in rows),
    )


def difference(saved: Sketch, now: Sketch | None) -> float | None:
    """About how far the answers are apart, in relative L2 norm; None where they are to different
    questions.
    """
    if now is None or now.inputs != saved.inputs:
        return None
    if now.answer == saved.answer:
        return 0.0
    if now.shapes != saved.shapes:
        return math.inf
    pairs = zip(saved.shadows, now.shadows, strict=True)
    gap = sum(float(numpy.square(numpy.subtract(one, other)).mean()) for one, other in pairs)
    total = sum(norm**2 for norm in saved.norms)
    return math.sqrt(gap / total) if total else math.sqrt(gap)


def _numbers(leaf: Tensor) -> Tensor:
    """Its numbers, or of very many some, evenly spaced."""
    flat = (torch.view_as_real(leaf) if leaf.is_complex() else leaf).detach().cpu().reshape(-1)
    return flat[:: max(1, flat.numel() // MOST_NUMBERS)][:MOST_NUMBERS].double()


def _signs(count: int) -> Tensor:
    """Always the same: numpy promises that this generator's numbers stay."""
    signs = numpy.random.RandomState(0).randint(0, 2, (SHADOWS, count)) * 2.0 - 1.0
    return torch.from_numpy(signs)
