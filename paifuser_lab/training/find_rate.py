"""The learning-rate finder: the loss while the rate rises step by step, on a copy of the model.

As in L. N. Smith, Cyclical Learning Rates for Training Neural Networks (2017): the rate to train
with is below the one at which the loss falls steepest, and far below the one at which it diverges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count as count_up

import numpy
import torch

from ..arguments import check_count
from ..errors import StepError, stop_if_asked
from ..model.copying import copied
from ..progress import progress
from ..records import RateCurve
from ..workload import QUIET, Derived, Workload, outside_inference, workload_of
from ..workload.data import Batch, Batches
from ..workload.seeding import preserve_rng
from .learner import Learner
from .plan import TrainPlan
from .run import checked_loss, named_failure
from .workloads import loss_of, objective_of, plan_of

SMOOTHING = 0.9  # of the running mean of losses
DIVERGED = 4.0  # times the lowest mean loss, where it ends
MARGIN = 10.0  # the suggested rate is below the best one by this
FEWEST = 8  # steps before it may diverge


@outside_inference
def find_rate(
    subject: Workload | Derived,
    *,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
    should_stop: Callable[[], bool] | None = None,
    **options: object,
) -> RateCurve:
    """The loss at learning rates from lowest to highest, and the rate to train with.

    A copy of the model is trained; the workload stays as it is. Options are those of `lab.train`.
    """
    work = workload_of(subject)
    plan, objective = plan_of(dict(options)), objective_of(loss_of(work))
    check_count("steps", steps, least=FEWEST, error=StepError)
    if not 0 < lowest < highest < math.inf:
        raise StepError(
            f"lowest={lowest!r} and highest={highest!r} are no range; give 0 < lowest < highest."
        )
    model = copied(work.model).train()
    batches = Batches(work.train, work.device)
    learner = Learner(model, None, plan, work.device)
    rates = numpy.geomspace(lowest, highest, steps).tolist()
    losses: list[float] = []
    with (
        QUIET,
        preserve_rng(work.device),
        torch.enable_grad(),
        learner.prepared(),
        progress("learning rates", steps) as shown,
    ):
        for rate, batch in zip(rates, _endless(batches, plan), strict=False):
            stop_if_asked(should_stop)
            with named_failure(f"step {len(losses) + 1} of {steps}"):
                loss = learner.loss(partial(objective, model, batch.inputs.clone(), batch.target))
                losses.append(checked_loss(loss))
                shown.advance(doing=f"rate {rate:.2g} · loss {losses[-1]:.4g}")
                if not math.isfinite(losses[-1]) or _has_diverged(losses):
                    break
                learner.take_step(loss, rate)
    if not math.isfinite(losses[0]):
        raise StepError(
            f"the loss of {work.name} is {losses[0]} before the first step; look for a NaN or an "
            "infinity in the train data and the targets."
        )
    return _curve(work, plan, rates, losses)


def _endless(batches: Batches, plan: TrainPlan) -> Iterator[Batch]:
    """The batches of one epoch after another."""
    for epoch in count_up():
        with closing(batches.epoch(plan.seed, epoch)) as one:
            yield from one


def _has_diverged(losses: Sequence[float]) -> bool:
    means = smoothed(losses)
    lowest = min(means)  # may be below zero
    return len(losses) >= FEWEST and means[-1] - lowest > (DIVERGED - 1) * abs(lowest)


def smoothed(losses: Sequence[float]) -> list[float]:
    """The running mean of the losses, corrected for its start."""
    means, mean = [], 0.0
    for count, loss in enumerate(losses, 1):
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        means.append(mean / (1 - SMOOTHING**count))
    return means


def _curve(
    work: Workload, plan: TrainPlan, rates: Sequence[float], losses: Sequence[float]
) -> RateCurve:
    kept = [loss for loss in losses if math.isfinite(loss)]
    means = smoothed(kept)
    lowest = min(range(len(means)), key=means.__getitem__)
    if means[lowest] >= means[0]:
        suggested, reason = rates[0], "No rate made the loss fall; the lowest is suggested."
    else:
        steepest = min(range(1, lowest + 1), key=lambda index: means[index] - means[index - 1])
        suggested = max(rates[0], min(rates[steepest], rates[lowest] / MARGIN))
        reason = (
            f"The loss is lowest at {rates[lowest]:.2g} and falls steepest at "
            f"{rates[steepest]:.2g}; suggested is the lower of that and a tenth of the first."
        )
    return RateCurve(
        workload=work.name,
        optimizer=plan.optimizer,
        rates=tuple(rates[: len(kept)]),
        losses=tuple(kept),
        smooth=tuple(means),
        suggested=suggested,
        reason=reason,
    )
