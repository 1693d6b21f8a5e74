"""The inputs and the target of a step, and the step on real tensors at any batch size."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ...records import StepOptions
from ...workload import Inputs, Workload
from ...workload.batching import example_batch, repeated
from ...workload.data import first_batches
from .step import Subject


def example_of(work: Workload, options: StepOptions) -> tuple[Inputs, Any, int]:
    """The inputs, the target and their batch: a batch of the train data for a step of training with
    a loss, else the example inputs.
    """
    example_batch(work)
    if not options.train or work.loss is None or work.train is None:
        return work.inputs, None, example_batch(work)
    batches = islice(first_batches(work.train, work.device, "train data"), 1)
    inputs, target = next(batches, (work.inputs, None))
    sizes = [tensor.shape[0] for tensor in inputs.tensors if tensor.ndim]
    return inputs, target, sizes[0] if sizes else 1


def real_subject(work: Workload, options: StepOptions, batch: int) -> Subject:
    """A copy of the model with inputs and target of this batch, on real tensors."""
    inputs, target, example = example_of(work, options)
    both = repeated(Inputs((inputs.args, inputs.kwargs, target)), example, batch)
    args, kwargs, target = both.args
    model = work.copied().model
    return Subject(model, Inputs(args, kwargs), work.loss, target, options).prepare()
