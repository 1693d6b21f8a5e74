"""A model's output as a few numbers that keep distances: a random projection (Johnson and
Lindenstrauss 1984).
"""

from __future__ import annotations

import math

import numpy
import torch
from torch import Tensor, nn

from ...model.tensors import tensors_in
from ...model.weights import answer_hash
from ...records import Sketch
from ...workload import Workload, running

SHADOWS = 32
MOST_NUMBERS = 1 << 14  # per tensor


def sketch_of(work: Workload, model: nn.Module) -> Sketch | None:
    """The sketch of the output for the example inputs; None if the model is not deterministic."""
    with running(model):
        output, repeated = (work.inputs.clone()(model) for _ in range(2))
    if answer_hash(output) != answer_hash(repeated):
        return None
    leaves = tensors_in(output)
    rows = [_numbers(leaf) for leaf in leaves]
    return Sketch(
        inputs=answer_hash(work.inputs.tensors),
        answer=answer_hash(output),
        norms=tuple(float(row.norm()) for row in rows),
        shapes=tuple(tuple(leaf.shape) for leaf in leaves),
        shadows=tuple(tuple((_signs(len(row)) @ row).tolist()) for row in rows),
    )


def difference(saved: Sketch, now: Sketch | None) -> float | None:
    """The estimated relative L2 distance of two outputs; None if their inputs differ."""
    if now is None or now.inputs != saved.inputs:
        return None
    if now.answer == saved.answer:
        return 0.0
    if now.shapes != saved.shapes:
        return math.inf
    pairs = zip(saved.shadows, now.shadows, strict=True)
    gap = sum(float(numpy.square(numpy.subtract(first, second)).mean()) for first, second in pairs)
    total = sum(norm**2 for norm in saved.norms)
    return math.sqrt(gap / total) if total else math.sqrt(gap)


def _numbers(leaf: Tensor) -> Tensor:
    """The tensor's numbers; of a large tensor a sample at even distances."""
    flat = (torch.view_as_real(leaf) if leaf.is_complex() else leaf).detach().cpu().reshape(-1)
    return flat[:: max(1, flat.numel() // MOST_NUMBERS)][:MOST_NUMBERS].double()


def _signs(count: int) -> Tensor:
    """Random signs, always the same: numpy keeps RandomState's stream stable."""
    signs = numpy.random.RandomState(0).randint(0, 2, (SHADOWS, count)) * 2.0 - 1.0
    return torch.from_numpy(signs)
