"""What `lab.enable()` gains in training, beside its switches and peers, and the loss."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import combinations
from typing import Annotated, Any

import numpy
import torch
import typer
from torch import nn

from paifuser_lab import accelerate
from paifuser_lab.accelerate.race import Way
from paifuser_lab.accelerate.switches import SWITCHES, Parts, Switch
from paifuser_lab.accelerate.switches.base import Call
from paifuser_lab.accelerate.switches.channels_last import ChannelsLast
from paifuser_lab.bench.runner import (
    BenchRecord,
    Names,
    Seconds,
    Threads,
    check_known,
    measured_rows,
)
from paifuser_lab.bench.text import number, percent, ratio, spread, times
from paifuser_lab.machine import threads as with_threads
from paifuser_lab.measure import peak_bytes
from paifuser_lab.measure.timing import median_interval
from paifuser_lab.records import Record, readable_bytes

from .train_models import MODELS, Trained

EAGER, CHOSEN, AUTOCAST = "eager", "enable()", "torch.autocast"
STEPS, OF_LARGE = 200, 60  # of the runs whose last losses are compared; a large model's are long
MOST_STEPS = 1000  # of a loop until everything is judged
BLOCK, LAST = 3, 20  # steps of a block, and losses that are averaged
FEWEST = 5  # rounds at least
# after so many rounds what takes more than so many times eager's step leaves
LEAVES = {2: 4.0, FEWEST: 2.0}
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
    """The mean of a run's last losses, by seed, plain and under `enable()`."""

    model: str
    plain: tuple[float, ...]
    accelerated: tuple[float, ...]
    judging_share: float | None = None
    judged_steps: int = 0
    on: tuple[str, ...] = ()
    steps: int = STEPS

    @property
    def cell(self) -> str:
        """Both losses with their ranges over seeds, and what judging cost."""
        share = self.judging_share
        cost = "" if share is None else f"; judging {percent(share)}"
        fewer = "" if self.steps == STEPS else f"; {self.steps} steps"
        return f"{spread(self.plain)} → {spread(self.accelerated)}{cost}{fewer}"


class TrainBench(BenchRecord):
    """The result of `python -m benchmarks train`."""

    caption = "training on {0.machine}, {0.threads} thread(s): × over eager fp32"
    threads: int
    rows: tuple[TrainRow, ...] = ()
    losses: tuple[TrainLoss, ...] = ()
    absent: dict[str, str] = {}

    def table(self) -> list[dict[str, str]]:
        """A row for each model: eager, what the judge chose, autocast, the best of all ways."""
        losses = {loss.model: loss for loss in self.losses}
        models = dict.fromkeys(row.model for row in self.rows)
        return [self._line(name, losses.get(name)) for name in models] or super().table()

    def _line(self, model: str, loss: TrainLoss | None) -> dict[str, str]:
        ways = {row.way: row for row in self.rows if row.model == model}
        cells = {way: ratio(row.ratio, row.interval) for way, row in ways.items()}
        best = max(ways.values(), key=lambda row: row.ratio)
        return {
            "model": model,
            "eager, steps/s": number(ways[EAGER].steps_per_s) if EAGER in ways else "–",
            "`enable()`": cells.get(CHOSEN, "–"),
            "autocast": cells.get(AUTOCAST, "–"),
            "the best way": cells[best.way],
            "its name": best.way,
            "loss, plain → `enable()`": loss.cell if loss else "–",
        }

    @property
    def summary(self) -> str:
        """What was on, every way of every model, and what is missing."""
        lines = [f"{loss.model}: {', '.join(loss.on) or 'nothing'} on" for loss in self.losses]
        lines += [
            f"{row.model}, {row.way}: {row.steps_per_s:.3g} steps/s, "
            f"{ratio(row.ratio, row.interval)} ×, peak {readable_bytes(row.peak_bytes)}"
            for row in self.rows
        ]
        return "\n".join([*lines, *self.missing])

    @property
    def chosen_beside_autocast(self) -> list[str]:
        """What `enable()` chose for each model, beside autocast."""
        autocast = {row.model: times(row.ratio) for row in self.rows if row.way == AUTOCAST}
        return [
            f"{row.model} {times(row.ratio, row.interval)} beside {autocast.get(row.model, '–')}"
            for row in self.rows
            if row.way == CHOSEN
        ]

    def peaks(self, model: str) -> dict[str, int | None]:
        """The peak of a step of a model, by way."""
        return {row.way: row.peak_bytes for row in self.rows if row.model == model}

    @property
    def missing(self) -> list[str]:
        """The peers that are not installed, and the failures, a line each."""
        return [*(f"{name}: {why}" for name, why in self.absent.items()), *self.failed]


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 60.0,
    seeds: Annotated[
        int,
        typer.Option(
            help="Runs of 200 steps with and without, of a large model 60; 0 for none.", min=0
        ),
    ] = 3,
    compiles: Annotated[
        bool, typer.Option("--compile", help="Also race torch.compile, which takes minutes.")
    ] = False,
    threads: Threads = 1,
) -> TrainBench:
    """Train models with each switch of `lab.enable()`, with all, with what it chooses, and by
    peers: steps a second, peak memory, loss after 200 steps.
    """
    check_known(names or (), MODELS)
    losses: list[TrainLoss] = []
    absent: dict[str, str] = {}

    def raced(name: str) -> list[TrainRow]:
        chosen = None
        if seeds:
            losses.append(_losses(name, MODELS[name], seeds))
            chosen = frozenset(losses[-1].on)
        return _raced(name, MODELS[name], chosen, absent, seconds, compiles=compiles)

    with with_threads(threads):
        measured = measured_rows(names or tuple(MODELS), raced)
    return TrainBench(threads=threads, losses=tuple(losses), absent=absent, **measured)


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
    if not trained.is_large:
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
    return [_row(name, eager, contender) for contender in contenders if contender.block_s]


def _run_in_turn(contenders: list[Contender], trained: Trained, seconds: float) -> None:
    """Rounds of a block each, until the time is over; what is far slower than eager leaves."""
    shuffle, until, step = random.Random(0).shuffle, time.perf_counter() + seconds, 0
    order = _warmed(contenders, trained)
    rounds = 0
    while rounds < FEWEST or time.perf_counter() < until:
        shuffle(order)
        for contender in order:
            _block(contender, trained, step)
        step, rounds = step + BLOCK, rounds + 1
        if rounds in LEAVES:  # the rest of the time is for those that can win
            most = LEAVES[rounds] * numpy.median(contenders[0].block_s)
            order = [one for one in order if numpy.median(one.block_s) <= most]


def _warmed(contenders: list[Contender], trained: Trained) -> list[Contender]:
    """Those to race after a block that is not counted: a switch that is far slower alone, such as
    bf16 where the processor only emulates it, is not raced together with others.
    """
    kept, far, eager = [], set[str](), 0.0
    for contender in contenders:
        if contender.name != CHOSEN and far & {switch.name for switch in contender.switches}:
            continue
        _block(contender, trained, 0)
        kept.append(contender)
        took = contender.block_s.pop()
        eager = eager or took  # the first
        if contender.name in ALONE and took > LEAVES[2] * eager:
            far.add(contender.name)
    return kept


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
        if contender.peak_bytes is None and not trained.is_large:  # once, beside the timing
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
    rounds = len(contender.block_s)  # fewer than eager's where it was hopeless
    ratios = numpy.asarray(eager.block_s[:rounds]) / numpy.asarray(contender.block_s)
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
    steps = OF_LARGE if trained.is_large else STEPS
    loss = TrainLoss(model=name, plain=(), accelerated=(), steps=steps)
    for seed in range(seeds):
        for is_on in finals:
            torch.manual_seed(seed)
            with enabled() if is_on else nullcontext():
                step = trained.loop(1000 * seed)
                losses = [next(step) for _ in range(steps)]
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


# Peers of `lab.enable()`, set up as their users do.


def _autocast(contender: Any) -> None:
    model = contender.model

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*args, **kwargs)

    contender.call = call


def _compile(contender: Any) -> None:
    compiled: Any = torch.compile(contender.model)
    contender.call = lambda args, kwargs: compiled(*args, **kwargs)


def _accelerate(contender: Any) -> None:
    accelerator = import_module("accelerate").Accelerator(mixed_precision="bf16", cpu=True)
    model, contender.optimizer = accelerator.prepare(contender.model, contender.optimizer)
    contender.call = lambda args, kwargs: model(*args, **kwargs)
    contender.step = accelerator.backward


def _fabric(contender: Any) -> None:
    fabric = import_module("lightning.fabric").Fabric(
        accelerator="cpu", devices=1, precision="bf16-mixed"
    )
    model, contender.optimizer = fabric.setup(contender.model, contender.optimizer)
    contender.call = lambda args, kwargs: model(*args, **kwargs)
    contender.step = fabric.backward


PEERS: dict[str, Callable[[Any], None]] = {
    AUTOCAST: _autocast,
    "torch.compile": _compile,
    "HF Accelerate": _accelerate,
    "Lightning Fabric": _fabric,
}
