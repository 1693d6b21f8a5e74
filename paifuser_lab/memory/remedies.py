"""What would let more fit into a memory limit: each change with its predicted peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import PaifuserError
from ..records import FitRemedy, PredictedPeak, StepOptions, counted
from ..workload import Derived, Workload
from .predict import Predictor
from .predict.blocks import repeated_blocks
from .predict.predictor import has_same_update

Largest = Callable[[Predictor], int | None]
Change = tuple[str, str, StepOptions]  # its name, how it is made, the options with it
AUTOCAST = "torch.autocast(…, dtype=torch.bfloat16) around model and loss"
CHECKPOINT = "torch.utils.checkpoint.checkpoint(…, use_reentrant=False) around each"


class Variants:
    """The predictors of one workload under other options, each made once. Those whose optimizer
    does the same share its step.
    """

    def __init__(self, subject: Workload | Derived, first: Predictor) -> None:
        self.subject, self.first = subject, first
        self._known = {first.options: first}

    def of(self, options: StepOptions) -> Predictor:
        """The predictor under these options."""
        if options not in self._known:
            same = (one for one in self._known.values() if has_same_update(one.options, options))
            self._known[options] = Predictor(self.subject, options, next(same, None))
        return self._known[options]


def remedies(
    subject: Workload | Derived,
    predictor: Predictor,
    peak: PredictedPeak,
    limit: int,
    largest: Largest,
    largest_batch: int | None,
) -> tuple[FitRemedy, ...]:
    """The changes that lower the predicted peak, in the order of what they cost a user."""
    variants = Variants(subject, predictor)
    found = [
        remedy
        for change in _changes(variants, peak, limit)
        if (remedy := _remedy(variants, predictor, peak, change, largest)) is not None
    ]
    if largest_batch is not None and largest_batch < peak.batch:
        smaller = FitRemedy(
            change=f"a batch of {largest_batch}",
            how="gradients of several batches can be summed" if peak.options.train else "",
            options=peak.options,
            batch=largest_batch,
            peak_bytes=predictor.peak(largest_batch).peak_bytes,
            largest_batch=largest_batch,
        )
        found.insert(0, smaller)
    return tuple(found)


def _changes(variants: Variants, peak: PredictedPeak, limit: int) -> Iterator[Change]:
    options = peak.options
    if not options.train:
        if options.precision == "fp32":
            yield "bf16", "the step precision: {default: bf16}", _with(options, precision="bf16")
        return
    together = options
    if options.implementation != "fused":
        together = _with(together, implementation="fused")
        yield "a fused optimizer", "fused=True", _with(options, implementation="fused")
    if options.precision == "fp32":
        together = _with(together, precision="amp-bf16")
        yield "bf16 autocast", AUTOCAST, _with(options, precision="amp-bf16")
    if layers := _to_checkpoint(variants, peak, limit):
        together = _with(together, checkpoint=layers)
        named = layers[0] if len(layers) == 1 else f"{layers[0]} … {layers[-1]}"
        name = f"checkpointing {counted(len(layers), 'block')}: {named}"
        yield name, CHECKPOINT, _with(options, checkpoint=layers)
    if together != options:
        yield "all of these", "", together


def _to_checkpoint(variants: Variants, peak: PredictedPeak, limit: int) -> tuple[str, ...]:
    """The fewest of the first blocks whose checkpointing lets the step fit; all of them if no
    number of them does, or if it fits already.
    """
    blocks = repeated_blocks(variants.first.work.model)
    if peak.options.checkpoint or peak.peak_bytes <= limit:
        return () if peak.options.checkpoint else blocks
    low, high = 0, len(blocks)
    while high - low > 1:
        middle = (low + high) // 2
        options = _with(peak.options, checkpoint=blocks[:middle])
        try:
            count = variants.of(options).peak_bytes(peak.batch)
        except PaifuserError:
            count = None
        low, high = (low, middle) if count is not None and count <= limit else (middle, high)
    return blocks[:high]


def _remedy(
    variants: Variants,
    predictor: Predictor,
    peak: PredictedPeak,
    change: Change,
    largest: Largest,
) -> FitRemedy | None:
    """The remedy of a change; None if it saves nothing or the model does not take it."""
    name, how, options = change
    try:
        changed = variants.of(options)
        count = changed.peak(peak.batch).peak_bytes
    except PaifuserError:  # an operator without this precision, say
        return None
    if count >= peak.peak_bytes:
        return None
    more = None
    if options.checkpoint != peak.options.checkpoint and options.precision == "fp32":
        more = changed.flops(peak.batch) / max(1, predictor.flops(peak.batch)) - 1
    return FitRemedy(
        change=name,
        how=how,
        options=options,
        batch=peak.batch,
        peak_bytes=count,
        largest_batch=largest(changed),
        more_flops=more,
    )


def _with(options: StepOptions, **changes: object) -> StepOptions:
    return options.model_copy(update=changes)
