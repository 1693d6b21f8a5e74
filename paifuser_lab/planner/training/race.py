"""Whole steps of training in several ways, timed in turn on one copy of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle

import torch

from ...measure import Candidate, Samples, rounds_in_turn
from ...model.copying import copied
from ...training import TrainPlan
from ...training.learner import Learner
from ...training.precision import LayerFormats
from ...training.workloads import loss_of, objective_of
from ...workload import Workload
from ...workload.data import Batch
from ...workload.seeding import preserve_rng

ROUNDS = 40


def raced_steps(
    work: Workload, batches: Sequence[Batch], plans: Mapping[str, TrainPlan], seconds: float
) -> dict[str, Samples]:
    """The times of a step with each plan: forward, backward, and the optimizer at a rate of 0."""
    objective = objective_of(loss_of(work))
    model = copied(work.model).train()
    first = next(iter(plans.values()))  # whose optimizer all have
    learner = Learner(model, None, first, work.device)
    source = cycle(batches)

    @contextmanager
    def in_force(plan: TrainPlan) -> Iterator[None]:
        learner.plan = plan
        learner.formats = LayerFormats(model, plan.formats, work.device)
        with learner.prepared():
            yield

    def step() -> None:
        batch = next(source)
        with torch.enable_grad():
            loss = learner.loss(partial(objective, model, batch.inputs.clone(), batch.target))
            learner.take_step(loss, 0.0)

    threads = torch.get_num_threads()
    candidates = [
        Candidate(name, step, threads, work.device, partial(in_force, plan))
        for name, plan in plans.items()
    ]
    with preserve_rng(work.device):
        *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
    return samples
