"""What `lab.enable()` gains in training: every switch alone, all together, what the judge chose,
and peers, in interleaved blocks of steps; and the loss after 200 steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import numpy
import torch
from torch import nn

from paifuser_lab import accelerate
from paifuser_lab.accelerate.race import Way
from paifuser_lab.accelerate.switches import SWITCHES, Parts, Switch
from paifuser_lab.accelerate.switches.base import Call
from paifuser_lab.accelerate.switches.channels_last import ChannelsLast
from paifuser_lab.bench.each import measure_each
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import machine_label
from paifuser_lab.measure import peak_bytes
from paifuser_lab.measure.timing import median_interval
from paifuser_lab.records import Record, readable_bytes

from .train_models import MODELS, Trained
from .train_peers import PEERS

EAGER, CHOSEN = "eager", "enable()"
STEPS = 200  # of the runs whose last losses are compared
MOST_STEPS = 1000  # of a loop until everything is judged
BLOCK, LAST = 3, 20  # steps of a block, and losses that are averaged
ALONE = ("precision", "channels_last", "fused_optimizer", "memory_pool")


class TrainRow(Record):
    """One way to train one model: × over eager fp32, in the same rounds."""

    model: str
    way: str
    steps_per_s: float
    ratio: float
    interval: tuple[float, float]
    peak_bytes: int | None = None


class TrainLoss(Record):
    """The mean of the last losses after 200 steps, by seed, plain and under `enable()`."""

    model: str
    plain: tuple[float, ...]
    accelerated: tuple[float, ...]
    judging_share: float | None = None
    judged_steps: int = 0
    on: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Both losses with their ranges over seeds."""
        cost = "" if self.judging_share is None else f"; judging cost {self.judging_share:.1%}"
        return (
            f"{self.model}: loss {_range(self.plain)} plain, {_range(self.accelerated)} under "
            f"enable() with {', '.join(self.on) or 'nothing'} on{cost}"
        )


class TrainBench(Record):
    """The result of `python -m benchmarks train`."""

    machine: str
    threads: int
    rows: tuple[TrainRow, ...] = ()
    losses: tuple[TrainLoss, ...] = ()
    absent: dict[str, str] = {}
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"training on {self.machine}, {self.threads} thread(s): × over eager fp32"

    def table(self) -> list[dict[str, str]]:
        """A row for each model and way."""
        return [
            {
                "model": row.model,
                "way": row.way,
                "steps/s": f"{row.steps_per_s:.3g}",
                "×": f"{row.ratio:.2f} ({row.interval[0]:.2f}–{row.interval[1]:.2f})",
                "peak of a step": readable_bytes(row.peak_bytes),
            }
            for row in self.rows
        ] or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """What was chosen against the best way here, the losses, and what is missing."""
        lines = []
        for name in dict.fromkeys(row.model for row in self.rows):
            rows = {row.way: row for row in self.rows if row.model == name}
            best = max(rows.values(), key=lambda row: row.ratio)
            if CHOSEN in rows:
                share = rows[CHOSEN].ratio / best.ratio
                lines.append(f"{name}: enable() has {share:.0%} of the best, {best.way}")
        lines += [loss.sentence for loss in self.losses]
        return "\n".join(
            [*lines, *(f"{name}: {why}" for name, why in (self.absent | self.failures).items())]
        )


def bench(
    names: Sequence[str] = (),
    *,
    seconds: float = 60.0,
    seeds: int = 3,
    compiles: bool = False,
    threads: int = 1,
) -> TrainBench:
    """Measure each model; a failure is recorded, and the next one is measured."""
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise MeasureError(f"'{unknown[0]}' is not trained here; there are {', '.join(MODELS)}.")
    rows: list[TrainRow] = []
    losses: list[TrainLoss] = []
    absent: dict[str, str] = {}
    before = torch.get_num_threads()

    def measure(name: str) -> None:
        chosen = None
        if seeds:
            loss = _losses(name, MODELS[name], seeds)
            losses.append(loss)
            chosen = frozenset(loss.on)
        rows.extend(_raced(name, MODELS[name], chosen, absent, seconds, compiles=compiles))

    torch.set_num_threads(threads)
    try:
        failures = measure_each(tuple(names or MODELS), measure)
    finally:
        torch.set_num_threads(before)
    return TrainBench(
        machine=machine_label(),
        threads=threads,
        rows=tuple(rows),
        losses=tuple(losses),
        absent=absent,
        failures=failures,
    )


@dataclass
class Contender:
    """A model of its own that trains in one way."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    call: Call
    switches: list[Switch] = field(default_factory=list)
    step: Callable[..., Any] = lambda loss: loss.backward()
    block_s: list[float] = field(default_factory=list)
    peak_bytes: int | None = None

    @property
    def parts(self) -> Parts:
        """What its switches act on."""
        return Parts([self.model], [self.optimizer])

    def reshapes_views(self, error: RuntimeError) -> bool:
        """Whether a view that channels-last does not allow is a reshape from now on."""
        return any(
            isinstance(switch, ChannelsLast) and switch.recover(self.model, error)
            for switch in self.switches
        )


def _contender(name: str, trained: Trained, labels: Way) -> Contender:
    torch.manual_seed(0)
    model = trained.make().train()
    optimizer = trained.optimizer(list(model.parameters()))
    contender = Contender(name, model, optimizer, lambda args, kwargs: model(*args, **kwargs))
    known = [kind({"precision": "bf16", "switches": set()}) for kind in SWITCHES.values()]
    for switch in known:
        is_meant = switch.label in labels or switch.name in labels
        if is_meant and not switch.obstacle(contender.parts):
            contender.switches.append(switch)
            contender.call = switch.wrap(model, contender.call)
    return contender


def _raced(
    name: str,
    trained: Trained,
    chosen: Way | None,
    absent: dict[str, str],
    seconds: float,
    *,
    compiles: bool,
) -> list[TrainRow]:
    """Blocks of steps of every way in turn, in shuffled order."""
    ways: dict[str, Way] = {EAGER: frozenset()}
    ways |= {switch: frozenset({switch}) for switch in ALONE}
    pairs = [*combinations(ALONE[:3], 2), ALONE[:3], ALONE]
    ways |= {" + ".join(pair): frozenset(pair) for pair in pairs}
    if chosen is not None:
        ways[CHOSEN] = chosen
    contenders = [_contender(label, trained, way) for label, way in ways.items()]
    usable = {switch.name for contender in contenders for switch in contender.switches}
    contenders = [
        contender
        for contender in contenders
        if contender.name in (EAGER, CHOSEN) or ways[contender.name] <= usable
    ]
    for label, prepare in PEERS.items():
        if label == "torch.compile" and not compiles:
            continue
        peer = _contender(label, trained, frozenset())
        try:
            prepare(peer)
        except ImportError as error:
            absent[label] = f"not installed ({error.name}); the extra 'peers' has it"
        else:
            contenders.append(peer)
    _run_in_turn(contenders, trained, seconds)
    eager = contenders[0]
    return [_row(name, eager, contender) for contender in contenders]


def _run_in_turn(contenders: list[Contender], trained: Trained, seconds: float) -> None:
    shuffle, until, step = random.Random(0).shuffle, time.perf_counter() + seconds, 0
    order = list(contenders)
    for contender in order:
        _block(contender, trained, step)
        contender.block_s.clear()
    while len(order[0].block_s) < 5 or time.perf_counter() < until:
        shuffle(order)
        for contender in order:
            _block(contender, trained, step)
        step += BLOCK


def _block(contender: Contender, trained: Trained, first: int) -> None:
    """Some steps with the contender's switches in force; the first is not counted."""
    parts = contender.parts
    batches = [trained.batch(first + index) for index in range(BLOCK)]
    with ExitStack() as stack:
        for switch in contender.switches:
            switch.turn_on(parts)
            stack.callback(switch.turn_off, parts)
        try:
            _step(contender, trained, *batches[0])
        except RuntimeError as error:
            if not contender.reshapes_views(error):
                raise
            _step(contender, trained, *batches[0])
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        began = clock()
        for inputs, labels in batches:
            _step(contender, trained, inputs, labels)
        contender.block_s.append((clock() - began) / BLOCK)
        if contender.peak_bytes is None:  # once, beside the timing
            device = torch.device("cpu")
            contender.peak_bytes = peak_bytes(
                lambda: _step(contender, trained, *batches[0]), device
            )


def _step(contender: Contender, trained: Trained, inputs: torch.Tensor, labels: Any) -> None:
    contender.optimizer.zero_grad()
    loss = trained.loss(contender.call((inputs,), {}), labels)
    contender.step(loss)
    contender.optimizer.step()


def _row(name: str, eager: Contender, contender: Contender) -> TrainRow:
    ratios = numpy.asarray(eager.block_s) / numpy.asarray(contender.block_s)
    ratio, interval = median_interval(ratios)
    return TrainRow(
        model=name,
        way=contender.name,
        steps_per_s=1 / float(numpy.median(contender.block_s)),
        ratio=ratio,
        interval=interval,
        peak_bytes=contender.peak_bytes,
    )


def _losses(name: str, trained: Trained, seeds: int) -> TrainLoss:
    """The same loop over seeds, plain and under `enable()`, whose first run goes on until
    everything is judged.
    """
    # as many threads as every other way has
    enabled = partial(accelerate.enable, compile=False, threads=False)
    finals: dict[bool, list[float]] = {False: [], True: []}
    loss = TrainLoss(model=name, plain=(), accelerated=())
    for seed in range(seeds):
        for is_on in finals:
            torch.manual_seed(seed)
            with enabled() if is_on else nullcontext():
                step = trained.loop(1000 * seed)
                losses = [next(step) for _ in range(STEPS)]
                if is_on and not seed:
                    status = accelerate.status()
                    share = status.judging_share
                    while status.is_judging and status.steps < MOST_STEPS:
                        next(step)
                        status = accelerate.status()
                    found = {"on": status.on, "judged_steps": status.judged_steps}
                    loss = loss.model_copy(update=found | {"judging_share": share})
            finals[is_on].append(float(numpy.mean(losses[-LAST:])))
    means = {"plain": tuple(finals[False]), "accelerated": tuple(finals[True])}
    return loss.model_copy(update=means)


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{numpy.mean(values):.3g} ({low:.3g}–{high:.3g})"
