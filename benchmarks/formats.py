"""Formats by layer against torch's autocast in training: each model is trained from new weights in
fp32, under autocast and, where it chose another way, as `plan_training_formats` says, for the same
time.

How many steps a way takes in that time follows from speeds measured in turn, so that each way goes
through its whole schedule of learning rates, and the machine's drift favours none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import fmean

import torch

from paifuser_lab import zoo
from paifuser_lab.bench.each import measure_each
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import machine_label
from paifuser_lab.measure import ratio_of_rounds
from paifuser_lab.planner.training import plan_training_formats
from paifuser_lab.planner.training.formats import FP32
from paifuser_lab.planner.training.measured import raced_steps
from paifuser_lab.records import Record, TrainingFormats
from paifuser_lab.training import TrainPlan, train
from paifuser_lab.training.workloads import objective_of
from paifuser_lab.workload import Inputs, Workload, running
from paifuser_lab.workload.data import Batch, Batches
from paifuser_lab.zoo.trained import SETUPS

MODELS = ("resnet18-hard-digits", "segnet-streets", "segvit-maps", "yolo-streets")
AUTOCAST = "autocast bf16"
RACE_S = 10.0
TIMED = 4  # batches that a step is timed on, in turn


class FormatTraining(Record):
    """One training: its steps, the CPU seconds they took, and the result on the test data."""

    way: str
    seed: int
    steps: int
    seconds: float
    loss: float
    score: float


class FormatsRow(Record):
    """A model trained in each way: the chosen formats, the speed of a step, the trainings."""

    model: str
    metric: str
    plan: TrainingFormats
    plan_s: float  # to choose the formats, which the trainings' time leaves out
    ratios: dict[str, float]  # × over a step in fp32
    intervals: dict[str, tuple[float, float]]
    trainings: tuple[FormatTraining, ...] = ()

    def of(self, way: str) -> list[FormatTraining]:
        """The trainings of a way, by seed."""
        return sorted((row for row in self.trainings if row.way == way), key=lambda row: row.seed)

    def gains(self, way: str, other: str) -> list[float]:
        """How much higher the metric of a way is than that of another, for each seed of both."""
        scores = {row.seed: row.score for row in self.of(other)}
        return [row.score - scores[row.seed] for row in self.of(way) if row.seed in scores]

    @property
    def chosen_gains(self) -> list[float]:
        """How much higher the metric is in the chosen formats than under autocast, by seed; empty
        where autocast was chosen.
        """
        return [] if self.plan.way == AUTOCAST else self.gains(self.plan.way, AUTOCAST)


class FormatsBench(Record):
    """The result of `python -m benchmarks formats`."""

    machine: str
    seconds: float
    rows: tuple[FormatsRow, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"trainings of {self.seconds:g} s of fp32 on {self.machine}, one thread"

    def table(self) -> list[dict[str, str]]:
        """A row for each model and way: means over seeds."""
        return [
            {
                "model": row.model,
                "way": way,
                "×": f"{row.ratios[way]:.2f} ({low:.2f}–{high:.2f})",
                "steps": str(row.of(way)[0].steps),
                "CPU s": f"{fmean(one.seconds for one in row.of(way)):.1f}",
                "loss": f"{fmean(one.loss for one in row.of(way)):.4g}",
                "metric": f"{fmean(one.score for one in row.of(way)):.4f}",
            }
            for row in self.rows
            for way, (low, high) in row.intervals.items()
            if row.of(way)
        ] or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """What was chosen for each model, the metric gained over autocast, and the failures."""
        lines = [
            f"{row.plan.title}; chosen is {row.plan.way}, over {AUTOCAST} the metric gains "
            + (", ".join(f"{gain:+.4f}" for gain in row.chosen_gains) or "nothing, it is the same")
            for row in self.rows
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failures.items())])


def bench(
    names: Sequence[str] = (), *, seconds: float = 20.0, seeds: int = 3, race_s: float = RACE_S
) -> FormatsBench:
    """Train each model with each seed in each way, for as long as fp32 takes for `seconds` of
    steps; a failure is recorded, and the next model is trained.
    """
    unknown = [name for name in names if name not in SETUPS or SETUPS[name].weights]
    if unknown:
        known = ", ".join(name for name, setup in SETUPS.items() if not setup.weights)
        raise MeasureError(f"'{unknown[0]}' is not trained here; there are {known}.")
    rows: list[FormatsRow] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        failures = measure_each(
            tuple(names or MODELS),
            lambda name: rows.append(_row(name, seconds, seeds, race_s)),
        )
    finally:
        torch.set_num_threads(before)
    return FormatsBench(
        machine=machine_label(), seconds=seconds, rows=tuple(rows), failures=failures
    )


def _row(name: str, seconds: float, seeds: int, race_s: float) -> FormatsRow:
    setup = SETUPS[name]
    parts = zoo.build(name, trained=False)
    data, _ = (setup.train_data or setup.data)()
    work = Workload(parts.model, data[0][0], name=name, loss=parts.loss, train=data)
    began = time.perf_counter()
    chosen = plan_training_formats(work)
    plan_s = time.perf_counter() - began
    plan = TrainPlan.of(setup.plan(0))
    ways = {FP32: plan, AUTOCAST: plan.model_copy(update={"precision": "bf16"})}
    if chosen.way not in ways:
        options = {"precision": chosen.default, "formats": chosen.formats}
        ways[chosen.way] = plan.model_copy(update=options)
    batches = [Batch(Inputs.of(inputs), target) for inputs, target in data[:TIMED]]
    samples = raced_steps(work, batches, ways, race_s)
    raced = {way: ratio_of_rounds(samples[FP32], samples[way]) for way in ways}
    most = 1e3 * seconds / samples[FP32].median_ms
    steps = {way: max(1, round(most * ratio)) for way, (ratio, _) in raced.items()}
    order, shuffle = list(ways), random.Random(0).shuffle
    trainings = []
    for seed in range(seeds):
        shuffle(order)
        trainings += [_trained(name, way, ways[way], seed, steps[way], data) for way in order]
    return FormatsRow(
        model=name,
        metric=getattr(setup.metric, "__name__", "metric"),
        plan=chosen,
        plan_s=plan_s,
        ratios={way: ratio for way, (ratio, _) in raced.items()},
        intervals={way: interval for way, (_, interval) in raced.items()},
        trainings=tuple(trainings),
    )


def _trained(
    name: str, way: str, plan: TrainPlan, seed: int, steps: int, data: zoo.Batches
) -> FormatTraining:
    """One training from new weights, and its result in fp32 on the test data."""
    parts = zoo.build(name, trained=False, seed=seed)
    assert parts.loss is not None and parts.test is not None and parts.metric is not None
    own = plan.model_copy(update={"epochs": 1, "seed": seed})
    repeated = [data[index % len(data)] for index in range(steps)]
    batches = Batches(repeated, torch.device("cpu"))
    began = time.thread_time()
    train(parts.model, batches, objective_of(parts.loss), own, what=f"{name}, {way}, seed {seed}")
    seconds = time.thread_time() - began
    with running(parts.model):
        losses = [float(parts.loss(parts.model(inputs), target)) for inputs, target in parts.test]
        score = parts.metric(parts.model, parts.test)
    return FormatTraining(
        way=way, seed=seed, steps=steps, seconds=seconds, loss=fmean(losses), score=score
    )
