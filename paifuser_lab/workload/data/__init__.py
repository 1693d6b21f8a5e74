"""A workload's data: batches on the device; an error names the batch at which it was raised.

source.py     the batches of a list or a loader in its own order; the first few
sampled.py    batches in an order that a seed determines, each fetched at its use
joined.py     examples joined to one batch: those to fit to and those to evaluate on
epochs.py     epochs of training, shuffled by seed and epoch

A caller that uses n batches causes n to be read, of a list as of a loader. More is read only where
documented: by an epoch of training, by a metric or a loss over all test data, and to count the
batches of a loader without a length where all of them are used.
"""

from .epochs import Batches
from .joined import Samples, samples_of
from .sampled import SampledBatches, example_inputs, sampled_batches
from .source import Batch, Same, calibration_batches, data_for_evaluation, first_batches

__all__ = [
    "Batch",
    "Batches",
    "Same",
    "SampledBatches",
    "Samples",
    "calibration_batches",
    "data_for_evaluation",
    "example_inputs",
    "first_batches",
    "sampled_batches",
    "samples_of",
]
