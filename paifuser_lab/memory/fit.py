"""Whether a workload fits into a memory limit before it is run, and the largest batch that does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ..arguments import bytes_of
from ..errors import MeasureError
from ..records import Fit, readable_bytes
from ..workload import Derived, Workload, workload_of
from ..workload.batching import example_batch
from .limits import safe_limit
from .predict import Predictor
from .predict.predictor import options_of
from .remedies import remedies

MOST = 2**20  # examples, the largest batch that is tried
SMALLEST = (1, 2)  # batch-norm refuses to be trained on one example


def fits(
    subject: Workload | Derived,
    train: bool = False,
    limit: int | str | None = None,
    *,
    batch: int | None = None,
    **options: Any,
) -> Fit:
    """Predict whether a call, or a step of training, fits into a limit ('8 GB', '512 MB', bytes).

    Nothing is run: the peak is predicted with fake tensors. The answer has the peak by category,
    the largest batch that fits, and what would make more fit. The default limit is a safe share of
    the free memory, the default batch that of the example inputs. Options are those of a step:
    precision, optimizer, momentum, implementation ('for-loop', 'foreach', 'fused') and checkpoint.
    """
    work = workload_of(subject)
    predictor = Predictor(subject, options_of(train=train, **options))
    peak = predictor.peak(example_batch(work) if batch is None else batch)
    weights = peak.held.weights_bytes
    allowed = safe_limit(work.device, weights=weights) if limit is None else bytes_of(limit)
    if allowed < weights:
        raise _too_small(predictor, peak.batch, weights, allowed)
    largest = largest_of(predictor, allowed, peak.batch)
    return Fit(
        predicted=peak,
        limit_bytes=allowed,
        largest_batch=largest,
        is_open=largest == MOST,
        remedies=remedies(
            subject,
            predictor,
            peak,
            allowed,
            lambda other: largest_of(other, allowed, peak.batch),
            largest,
        ),
    )


def largest_of(predictor: Predictor, limit: int, start: int) -> int | None:
    """The largest batch within the limit by the line through two predictions, if a third one agrees
    with it; else by bisection.
    """
    line = predictor.line(start)
    if line is not None and line(1) <= limit:
        found = bisect_right(range(1, MOST + 1), limit, key=line)
        if predictor.peak_bytes(found) == line(found):
            return found
    return largest_batch(predictor.peak_bytes, limit, start)


def largest_batch(
    needed: Callable[[int], int | None], limit: int, start: int, most: int = MOST
) -> int | None:
    """The largest batch within the limit, by bisection; None if none is.

    `needed` gives the bytes of a batch, which do not fall as it grows, or None where the model
    refuses it. Memory grows about linearly, so that a line through two batches mostly finds it.
    """
    known: dict[int, int] = {}

    def is_within(batch: int) -> bool:
        count = needed(batch)
        if count is not None:
            known[batch] = count
        return count is not None and count <= limit

    low = next((batch for batch in sorted({start, *SMALLEST}, reverse=True) if is_within(batch)), 0)
    high = min((batch for batch in {start, *SMALLEST} if batch > low), default=None)
    while low and low < most and (high is None or high - low > 1):
        guess = _guess(known, low, high, limit, most)
        if is_within(guess):
            low = guess
        else:
            high = guess
    return low or None


def _guess(known: dict[int, int], low: int, high: int | None, limit: int, most: int) -> int:
    """The next batch to try, above `low` and below `high`: where a line through two known batches
    meets the limit, or every third time halfway.
    """
    last = most if high is None else high - 1
    others = sorted((batch for batch in known if batch != low), key=lambda batch: abs(batch - low))
    if not others:
        return min(2 * low, last)
    if high is not None and len(known) % 3 == 0:
        return (low + high) // 2
    slope = (known[others[0]] - known[low]) / (others[0] - low)
    guess = low + int((limit - known[low]) / slope) if slope > 0 else last
    return max(low + 1, min(guess, last))


def _too_small(predictor: Predictor, batch: int, weights: int, limit: int) -> MeasureError:
    """The error for a limit below the weights, with the smallest that works."""
    counts = {size: predictor.peak_bytes(size) for size in (*SMALLEST, batch)}
    size, needed = next((size, count) for size, count in counts.items() if count is not None)
    return MeasureError(
        f"{predictor.work.name} needs {readable_bytes(weights)} for its weights alone and the "
        f"limit is {readable_bytes(limit)}; the smallest that works is {needed:,} bytes, for a "
        f"batch of {size}."
    )
