"""The zoo's detector trained from scratch, plainly and under `enable()`: time, and mean average
precision on scenes that it was not trained on.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from statistics import fmean

import torch

from paifuser_lab import accelerate, zoo
from paifuser_lab.machine import machine_label
from paifuser_lab.records import Record
from paifuser_lab.training import Training, train
from paifuser_lab.training.workloads import objective_of
from paifuser_lab.zoo import Batches
from paifuser_lab.zoo.trained import SETUPS

NAME = "yolo-streets"
PLAIN, CHOSEN = "plain", "enable()"


class DetectorTraining(Record):
    """One training: CPU seconds of its thread, and mAP@0.5:0.95 at its end."""

    way: str
    seed: int
    seconds: float
    score: float
    on: tuple[str, ...] = ()  # the switches in force at its end


class DetectorBench(Record):
    """The result of `python -m benchmarks detector`."""

    machine: str
    threads: int
    epochs: int
    steps: int
    trainings: tuple[DetectorTraining, ...]

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"{NAME} trained for {self.steps} steps on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row for each training."""
        return [
            {
                "way": row.way,
                "seed": str(row.seed),
                "CPU s": f"{row.seconds:.1f}",
                "mAP": f"{row.score:.3f}",
                "on": ", ".join(row.on) or "–",
            }
            for row in self.trainings
        ]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times faster `enable()` was, judging included, a seed each."""
        pairs = self._by_seed()
        return tuple(plain.seconds / chosen.seconds for plain, chosen in pairs)

    def scores(self, way: str) -> tuple[float, ...]:
        """The mAP of each training of a way."""
        return tuple(row.score for row in self.trainings if row.way == way)

    @property
    def summary(self) -> str:
        """The ratio of the times, and both scores."""
        if not self.ratios:
            return "no seed was trained in both ways"
        times = ", ".join(f"{ratio:.2f}" for ratio in self.ratios)
        scores = " → ".join(f"{fmean(self.scores(way)):.3f}" for way in (PLAIN, CHOSEN))
        return f"{times} × as fast under enable(), a seed each; mean mAP {scores}"

    def _by_seed(self) -> list[tuple[DetectorTraining, DetectorTraining]]:
        """The plain training and the accelerated one of each seed that has both."""
        known = {(row.seed, row.way): row for row in self.trainings}
        seeds = dict.fromkeys(row.seed for row in self.trainings)
        return [
            (known[seed, PLAIN], known[seed, CHOSEN])
            for seed in seeds
            if {(seed, PLAIN), (seed, CHOSEN)} <= known.keys()
        ]


def bench(
    *, epochs: int = 15, seeds: int = 2, threads: int = 1, batches: int | None = None
) -> DetectorBench:
    """Train in both ways, the first one alternating from seed to seed, so that a drift of the
    machine cancels. `batches` limits those of an epoch.
    """
    setup = SETUPS[NAME]
    data, test = setup.data()
    data, test = data[:batches], test[:batches]
    trainings: list[DetectorTraining] = []
    order = [PLAIN, CHOSEN]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(seeds):
            for way in order:
                trainings.append(_trained(way, setup.plan(seed), epochs, data, test))
            order.reverse()
    finally:
        torch.set_num_threads(before)
    return DetectorBench(
        machine=machine_label(),
        threads=threads,
        epochs=epochs,
        steps=epochs * len(data),
        trainings=tuple(trainings),
    )


def _trained(
    way: str, plan: Training, epochs: int, data: Batches, test: Batches
) -> DetectorTraining:
    """One training from new weights."""
    setup, is_on = SETUPS[NAME], way == CHOSEN
    model = zoo.build(NAME, trained=False, seed=plan.seed).model
    # as many threads as the plain loop, and nothing compiled aside
    enabled = accelerate.enable(compile=False, threads=False) if is_on else None
    with enabled or nullcontext():
        began = time.thread_time()
        train(
            model,
            data,
            objective_of(setup.loss),
            plan.model_copy(update={"epochs": epochs}),
            what=f"{way}, seed {plan.seed}",
        )
        seconds = time.thread_time() - began
        on = accelerate.status().on if is_on else ()
    score = setup.metric(model.eval(), test)
    return DetectorTraining(way=way, seed=plan.seed, seconds=seconds, score=score, on=on)
