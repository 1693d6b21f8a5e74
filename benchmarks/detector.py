"""The zoo's detector trained from scratch, plainly and under `enable()`."""

from __future__ import annotations

import time
from contextlib import nullcontext
from statistics import fmean
from typing import Annotated, ClassVar

import typer

from paifuser_lab import accelerate, zoo
from paifuser_lab.bench.runner import BenchRecord, Columns, Threads
from paifuser_lab.machine import threads as with_threads
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


class DetectorBench(BenchRecord):
    """The result of `python -m benchmarks detector`."""

    caption = f"{NAME} trained for {{0.steps}} steps on {{0.machine}}"
    threads: int
    epochs: int
    steps: int
    trainings: tuple[DetectorTraining, ...]
    row_field = "trainings"
    columns: ClassVar[Columns] = {
        "way": "way",
        "seed": "seed",
        "CPU s": lambda row: f"{row.seconds:.1f}",
        "mAP": lambda row: f"{row.score:.3f}",
        "on": lambda row: ", ".join(row.on) or "–",
    }

    def of(self, way: str) -> list[DetectorTraining]:
        """The trainings of a way."""
        return [row for row in self.trainings if row.way == way]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times faster `enable()` was, judging included, for each seed of both ways."""
        plain = {row.seed: row.seconds for row in self.of(PLAIN)}
        chosen = {row.seed: row.seconds for row in self.of(CHOSEN)}
        return tuple(plain[seed] / chosen[seed] for seed in plain if seed in chosen)

    @property
    def summary(self) -> str:
        """The ratio of the times, and both scores."""
        times = ", ".join(f"{ratio:.2f}" for ratio in self.ratios)
        means = (fmean(row.score for row in self.of(way)) for way in (PLAIN, CHOSEN))
        scores = " → ".join(f"{mean:.3f}" for mean in means)
        return f"{times} × as fast under enable(), a seed each; mean mAP {scores}"


def bench(
    *,
    epochs: Annotated[int, typer.Option(help="Of each training.", min=1)] = 15,
    seeds: Annotated[int, typer.Option(help="Trainings in each way.", min=1)] = 2,
    threads: Threads = 1,
    batches: int | None = None,
) -> DetectorBench:
    """Train the zoo's detector from scratch, plainly and under `lab.enable()`: CPU time, and mean
    average precision.
    """
    setup = SETUPS[NAME]
    data, test = setup.data()
    data, test = data[:batches], test[:batches]
    trainings: list[DetectorTraining] = []
    order = [PLAIN, CHOSEN]  # reversed from seed to seed, so that a drift of the machine cancels
    with with_threads(threads):
        for seed in range(seeds):
            for way in order:
                trainings.append(_trained(way, setup.plan(seed), epochs, data, test))
            order.reverse()
    return DetectorBench(
        threads=threads, epochs=epochs, steps=epochs * len(data), trainings=tuple(trainings)
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
