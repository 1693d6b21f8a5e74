"""The one way to a workload's data: batches on the device, each failure named with its batch.

source.py     a list or a loader, batch by batch in its own order; the first few
sampled.py    batches in an order that a seed decides, fetched when they are asked for
joined.py     examples joined to one batch: those to fit to and those to evaluate on
epochs.py     epochs of training, shuffled by seed and epoch

Who asks for a number of batches reads that many, of a list as of a loader. More is read only where
it says so: by an epoch of training, by a metric or a loss over all test data, and to count the
batches of a loader that has no length where all of them are asked for.
"""

from __future__ import annotations

from .epochs import Batches
from .joined import Samples, samples_of
from .sampled import SampledBatches, example_inputs, sampled_batches
from .source import Batch, calibration_batches, data_for_evaluation, first_batches

__all__ = [
    "Batch",
    "Batches",
    "SampledBatches",
    "Samples",
    "calibration_batches",
    "data_for_evaluation",
    "example_inputs",
    "first_batches",
    "sampled_batches",
    "samples_of",
]
