"""The loss that a changed model adds, in the unit of a sensitivity: the rise of its loss on data,
or the error of its output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
import torch
from torch import nn

from ...measure import output_error
from ...workload import Inputs, Workload, running
from ...workload.data import Batch

Losses = list[tuple[int, float]]  # of each batch: its examples, and their mean loss


def losses(work: Workload, model: nn.Module, data: Iterable[tuple[Inputs, Any]]) -> Losses:
    """The number of examples and the loss of each batch."""
    assert work.loss is not None
    results: Losses = []
    with running(model):
        for inputs, target in data:
            examples = Batch(inputs).examples
            results.append(
                (examples, float(torch.as_tensor(work.loss(inputs.clone()(model), target))))
            )
    return results


def rise(before: Losses, after: Losses) -> tuple[float, float | None]:
    """The rise of the mean loss, and its standard error over the batches."""
    weights = numpy.array([count for count, _ in before], dtype=float)
    rises = numpy.array([new - old for (_, old), (_, new) in zip(before, after, strict=True)])
    mean = float(numpy.average(rises, weights=weights))
    if len(rises) < 2:
        return mean, None
    return mean, float(
        numpy.sqrt(numpy.average((rises - mean) ** 2, weights=weights) / (len(rises) - 1))
    )


def error_of_output(work: Workload, model: nn.Module) -> float:
    """The relative error of the output on the example inputs."""
    reference = work.output()
    with running(model):
        return output_error(reference, work.inputs.clone()(model))[0]
