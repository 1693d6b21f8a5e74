"""Whether a workload fits into a memory limit, the largest batch, and what lets more fit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from ..arguments import bytes_of
from ..errors import MeasureError, PaifuserError
from ..records import Fit, FitRemedy, PredictedPeak, StepOptions, counted, readable_bytes
from ..workload import Derived, Workload, workload_of
from ..workload.batching import example_batch
from .limits import safe_limit
from .predict import Predictor
from .predict.blocks import repeated_blocks
from .predict.predictor import has_same_update, options_of

Change = tuple[str, str, StepOptions]  # its name, how it is made, the options with it
AUTOCAST = "torch.autocast(…, dtype=torch.bfloat16) around model and loss"
CHECKPOINT = "torch.utils.checkpoint.checkpoint(…, use_reentrant=False) around each"


class Variants(dict[StepOptions, Predictor]):
    """Predictors of a workload by options, each made once; equal optimizers share their step."""

    def __init__(self, subject: Workload | Derived, first: Predictor) -> None:
        super().__init__({first.options: first})
        self.subject, self.first = subject, first

    def __missing__(self, options: StepOptions) -> Predictor:
        same = (one for one in self.values() if has_same_update(one.options, options))
        self[options] = Predictor(self.subject, options, next(same, None))
        return self[options]


def remedies(
    variants: Variants, peak: PredictedPeak, limit: int, largest: int | None
) -> tuple[FitRemedy, ...]:
    """The changes that lower the predicted peak, in the order of what they cost a user."""
    found = [
        remedy
        for change in _changes(variants, peak, limit)
        if (remedy := _remedy(variants, peak, limit, change)) is not None
    ]
    if largest is not None and largest < peak.batch:
        smaller = FitRemedy(
            change=f"a batch of {largest}",
            how="gradients of several batches can be summed" if peak.options.train else "",
            options=peak.options,
            batch=largest,
            peak_bytes=variants.first.peak(largest).peak_bytes,
            largest_batch=largest,
        )
        found.insert(0, smaller)
    return tuple(found)


def _changes(variants: Variants, peak: PredictedPeak, limit: int) -> Iterator[Change]:
    options = peak.options
    if not options.train:
        if options.precision == "fp32":
            yield "bf16", "the step precision: {default: bf16}", _with(options, precision="bf16")
        return
    together, count = options, 0
    if options.implementation != "fused":
        together, count = _with(together, implementation="fused"), count + 1
        yield "a fused optimizer", "fused=True", _with(options, implementation="fused")
    if options.precision == "fp32":
        together, count = _with(together, precision="amp-bf16"), count + 1
        yield "bf16 autocast", AUTOCAST, _with(options, precision="amp-bf16")
    if layers := _to_checkpoint(variants, peak, limit):
        together, count = _with(together, checkpoint=layers), count + 1
        named = layers[0] if len(layers) == 1 else f"{layers[0]} … {layers[-1]}"
        name = f"checkpointing {counted(len(layers), 'block')}: {named}"
        yield name, CHECKPOINT, _with(options, checkpoint=layers)
    if count > 1:
        yield "all of these", "", together


def _to_checkpoint(variants: Variants, peak: PredictedPeak, limit: int) -> tuple[str, ...]:
    """The fewest first blocks whose checkpointing makes the step fit; else all, also if it fits."""
    blocks = repeated_blocks(variants.first.work.model)
    if peak.options.checkpoint or peak.peak_bytes <= limit:
        return () if peak.options.checkpoint else blocks
    low, high = 0, len(blocks)
    while high - low > 1:
        middle = (low + high) // 2
        options = _with(peak.options, checkpoint=blocks[:middle])
        try:
            count = variants[options].peak_bytes(peak.batch)
        except PaifuserError:
            count = None
        low, high = (low, middle) if count is not None and count <= limit else (middle, high)
    return blocks[:high]


def _remedy(
    variants: Variants, peak: PredictedPeak, limit: int, change: Change
) -> FitRemedy | None:
    """The remedy of a change; None if it saves nothing or the model does not take it."""
    name, how, options = change
    try:
        changed = variants[options]
        count = changed.peak(peak.batch).peak_bytes
    except PaifuserError:  # an operator without this precision, say
        return None
    if count >= peak.peak_bytes:
        return None
    more = None
    if options.checkpoint != peak.options.checkpoint and options.precision == "fp32":
        more = changed.flops(peak.batch) / max(1, variants.first.flops(peak.batch)) - 1
    return FitRemedy(
        change=name,
        how=how,
        options=options,
        batch=peak.batch,
        peak_bytes=count,
        largest_batch=largest_of(changed, limit, peak.batch),
        more_flops=more,
    )


def _with(options: StepOptions, **changes: object) -> StepOptions:
    return options.model_copy(update=changes)


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
        remedies=remedies(Variants(subject, predictor), peak, allowed, largest),
    )


def largest_of(predictor: Predictor, limit: int, start: int) -> int | None:
    """The largest batch by the line through two predictions, if a third agrees, or by bisection."""
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
    """The next batch to try: where a line meets the limit, or every third time halfway."""
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
