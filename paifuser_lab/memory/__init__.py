"""Memory: what a call holds and why, how little it could hold, and less of it held.

    lab.fits(work, train=True, limit="8 GB")        # a limit, and what would make more fit
    with lab.memory_pool(limit="2 GB"): ...         # what is freed stays for the next request
    lab.memory_snapshot(work, train=True)           # who held what and when, of a run or a file

limits        a safe share of what is free; out-of-memory errors
fit           whether a workload fits into a limit, the largest batch, what would make more fit
predict       the peak of a call or a training step, predicted with fake tensors
pools         the allocator keeps what will be asked for again, with a limit and statistics
snapshots     memory snapshots: of a run here, or torch's files, read without executing them
lifetimes     one run as buffers: who makes each, who touches it last, when it is released
planning      buffers packed into one arena, against what torch's allocator held
sole_readers  values that only one layer or sum reads, and the sums that may write over them
reuse         activations and sums that write over an input where nobody reads it
"""

from .fit import fits
from .predict import Predictor, predicted_peak

__all__ = ["Predictor", "fits", "predicted_peak"]
