"""Formats by layer against torch's autocast in training: each model is trained from new weights in
fp32, under autocast and, where it chose another way, as `plan_training_formats` says, for the same
time.

How many steps a way takes in that time follows from speeds measured in turn, so that each way goes
through its whole schedule of learning rates, and the machine's drift favours none.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from statistics import fmean
from typing import Annotated

import torch
import typer

from paifuser_lab import zoo
from paifuser_lab.bench.runner import BenchRecord, Names, check_known, measured_rows
from paifuser_lab.bench.text import listed, minus, number, ratio, spread
from paifuser_lab.machine import threads
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

    def cells(self, way: str) -> dict[str, str]:
        """The cells of a way, by header."""
        headers, own = ("×", "steps", "CPU s", "loss", "metric"), self.of(way)
        if not own:
            return dict.fromkeys(headers, "–")
        scores = [one.score for one in own]
        cells = (
            ratio(self.ratios[way], self.intervals[way]),
            f"{own[0].steps:,}",
            number(fmean(one.seconds for one in own)),
            spread([one.loss for one in own]),
            f"{fmean(scores):.3f} ({min(scores):.3f}–{max(scores):.3f})",
        )
        return dict(zip(headers, cells, strict=True))

    @property
    def chosen_gains(self) -> list[float]:
        """How much higher the metric is in the chosen formats than under autocast, by seed; empty
        where autocast was chosen.
        """
        if self.plan.way == AUTOCAST:
            return []
        scores = {row.seed: row.score for row in self.of(AUTOCAST)}
        return [
            row.score - scores[row.seed] for row in self.of(self.plan.way) if row.seed in scores
        ]

    @property
    def sentence(self) -> str:
        """What was chosen, and whether the metric is higher than under autocast."""
        counts = Counter(layer.format for layer in self.plan.rows)
        formats = listed([f"{count} in {name}" for name, count in counts.most_common()])
        layers = f"{self.model}: of {len(self.plan.rows)} layers {formats}"
        chosen = f"{layers}, chosen in {self.plan_s:.0f} s"
        if self.plan.way == AUTOCAST:
            return f"{chosen}: autocast is the fastest way within the budget of loss."
        if self.plan.way == FP32:
            chosen += ", as no way within the budget of loss is certainly faster than fp32"
        gains = self.chosen_gains
        if not gains:
            return f"{chosen}."
        mean = minus(f"{fmean(gains):+.3f}")
        if min(gains) > 0 or max(gains) < 0:
            than = f"the metric is {'higher' if gains[0] > 0 else 'lower'} than autocast's"
            return f"{chosen}. With every seed {than}, by {mean} on average."
        return f"{chosen}. The metric is autocast's {mean} on average, higher with some seeds only."


class FormatsBench(BenchRecord):
    """The result of `python -m benchmarks formats`."""

    caption = "trainings of {0.seconds:g} s of fp32 on {0.machine}, one thread"
    seconds: float
    rows: tuple[FormatsRow, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """A row for each model and way: means over seeds, with their ranges."""
        return [
            {"model": "" if index else row.model, "way": way, **row.cells(way)}
            for row in self.rows
            for index, way in enumerate(row.ratios)
        ] or super().table()

    @property
    def chosen(self) -> str:
        """What was chosen for how many models."""
        count = len(self.rows)
        ways = Counter(row.plan.way for row in self.rows)
        if ways[FP32] == count:
            return f"Formats by layer kept fp32 everywhere in {count} of {count} models."
        each = listed([f"{way} in {number}" for way, number in ways.most_common()])
        return f"Of {count} models, chosen was {each}."

    @property
    def summary(self) -> str:
        """What was chosen for each model, and the failures."""
        return "\n".join([*(row.sentence for row in self.rows), *self.failed])


def bench(
    names: Names = None,
    *,
    seconds: Annotated[float, typer.Option(help="Of a training in fp32.", min=0.1)] = 20.0,
    seeds: Annotated[int, typer.Option(help="Trainings in each way.", min=1)] = 3,
    race_s: float = RACE_S,
) -> FormatsBench:
    """Train models in fp32, under torch's autocast and in a format for each layer, for the same
    time: steps, loss and metric on the test data.
    """
    check_known(names or (), [name for name, setup in SETUPS.items() if not setup.weights])
    with threads(1):
        measured = measured_rows(names or MODELS, lambda name: [_row(name, seconds, seeds, race_s)])
    return FormatsBench(seconds=seconds, **measured)


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
