"""Every way to train on several processes, simulated links, and pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import fmean, median
from typing import Annotated, Any, ClassVar

import numpy
import torch
import torch.distributed as dist
import typer
from torch import nn

from paifuser_lab.bench.runner import BenchRecord, Columns, Keep, check_known
from paifuser_lab.bench.text import number, percent, ratio
from paifuser_lab.errors import keep_when_stopped
from paifuser_lab.measure.timing import median_interval
from paifuser_lab.parallel import DataParallel, pipeline, run, tell
from paifuser_lab.parallel.plans import power_bytes
from paifuser_lab.parallel.simulated_link import simulated_link
from paifuser_lab.parallel.simulation import Communication, Compute, buckets_of, simulate_steps
from paifuser_lab.records import Link, PipelineSchedule, Record, readable_bytes

from .parallel_equal import EqualBench
from .parallel_equal import bench as equal_to_one
from .parallel_kills import KillBench, kill_ranks
from .parallel_models import MODELS, learn

WAYS: dict[str, dict[str, Any]] = {
    "DDP": {"sync_frequency": 1, "gradient_compression": False},
    "DDP, bf16": {"sync_frequency": 1, "gradient_compression": True},
    "DDP, PowerSGD": {"sync_frequency": 1, "gradient_compression": "powersgd"},
    "local 8": {"sync_frequency": 8, "gradient_compression": False},
    "local 32": {"sync_frequency": 32, "gradient_compression": False},
    "local 128": {"sync_frequency": 128, "gradient_compression": False},
    "local 32, int8 differences": {"sync_frequency": 32, "gradient_compression": True},
    "FSDP2": {"shard": "full", "gradient_compression": False},
}
REFERENCE = "DDP"
SIZE = {"width": 128, "depth": 4, "batch": 8, "batches": 64}
STEPS, ROUND = 384, 128  # of a training whose loss is compared, and of a round of a race
LINKS = (1.0, 10.0, 100.0)  # Gbit/s
RANKS = (2, 4, 8, 16)
REAL = (2, 4)  # of these as processes of this machine
LATENCY_US = 20.0


class ParallelWay(Record):
    """One way to train, on the processes of this machine."""

    way: str
    sent_bytes: float
    steps_per_s: float
    ratio: float
    interval: tuple[float, float]
    wait_share: float | None = None
    weights_bytes: int = 0
    optimizer_bytes: int = 0
    losses: tuple[float, ...] = ()


class LinkStep(Record):
    """A step over a simulated link: by the simulation, and by real processes where it ran."""

    way: str
    ranks: int
    gbit_per_s: float
    simulated_ms: float
    measured_ms: float | None = None

    @property
    def cell(self) -> str:
        """The simulated time, and the measured one in brackets."""
        measured = "" if self.measured_ms is None else f" ({self.measured_ms:.3g})"
        return f"{self.simulated_ms:.3g}{measured}"


class ParallelBench(BenchRecord):
    """The result of `python -m benchmarks parallel`."""

    caption = "{0.model} ({0.parameters:,} parameters) on {0.processes} processes of {0.machine}"
    model: str
    parameters: int
    processes: int
    steps: int
    alone: tuple[float, ...] = ()
    ways: tuple[ParallelWay, ...] = ()
    links: tuple[LinkStep, ...] = ()
    pipelines: tuple[PipelineSchedule, ...] = ()
    row_field = "ways"
    columns: ClassVar[Columns] = {
        "way": "way",
        "sent a step": lambda row: readable_bytes(round(row.sent_bytes)),
        "steps/s": lambda row: number(row.steps_per_s),
        "× DDP": lambda row: ratio(row.ratio, row.interval),
        "waits": lambda row: _share(row.wait_share),
        "weights": lambda row: readable_bytes(row.weights_bytes),
        "optimizer": lambda row: readable_bytes(row.optimizer_bytes),
        "loss": lambda row: readable_losses(row.losses),
    }

    def table_of_links(self) -> list[dict[str, str]]:
        """A step over each link by each way, a column for each number of processes."""
        ms = {(row.way, row.gbit_per_s, row.ranks): row.cell for row in self.links}
        return [
            {"way": way, "link": f"{rate:g} Gbit/s"}
            | {
                f"{ranks} processes": ms.get((way, rate, ranks), "–")
                for ranks in sorted({row.ranks for row in self.links})
            }
            for way in dict.fromkeys(row.way for row in self.links)
            for rate in sorted({row.gbit_per_s for row in self.links})
        ]

    @property
    def summary(self) -> str:
        """The loss of one process, the pipelines, and how far the simulation is off."""
        lines = [f"one process over the same examples: loss {readable_losses(self.alone)}"]
        lines += [record.title for record in self.pipelines]
        lines += [
            f"{row.way}, {row.ranks} processes at {row.gbit_per_s:g} Gbit/s: simulated "
            f"{row.simulated_ms:.3g} ms, measured {row.measured_ms:.3g} ms"
            for row in self.links
            if row.measured_ms
        ]
        return "\n".join(lines)


PIPELINES: Columns = {
    "schedule": "schedule",
    "split by": "split",
    "predicted": lambda record: f"{record.predicted_ms:.3g} ms",
    "measured": lambda record: (
        "–" if record.measured_ms is None else f"{record.measured_ms:.3g} ms"
    ),
    "bubble, predicted": lambda record: _share(record.predicted_bubble),
    "measured ": lambda record: _share(record.measured_bubble),  # shown without the space
    "from measured passes": lambda record: _share(record.explained_bubble),
    "waited for a core": lambda record: _share(record.core_wait_share),
}


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share, 0)


def readable_losses(losses: Sequence[float]) -> str:
    """The mean and the range over seeds."""
    if not losses:
        return "–"
    return f"{fmean(losses):.3g} ({min(losses):.3g}–{max(losses):.3g})"


def bench(
    model: Annotated[str, typer.Argument(help="cnn, vit or gpt-like.")] = "gpt-like",
    *,
    processes: Annotated[int, typer.Option(help="Processes of this machine.", min=2)] = 2,
    seeds: Annotated[int, typer.Option(help="Trainings of each way; 0 for none.", min=0)] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of the race.", min=1)] = 5,
    kills: Annotated[
        int, typer.Option(help="Instead, kill ranks so often under torchrun, and resume.", min=0)
    ] = 0,
    equal: Annotated[
        bool,
        typer.Option(
            "--equal",
            help="Instead, compare every strategy, model, and 2 and 4 processes with one.",
        ),
    ] = False,
    keep: Keep = lambda record: None,
    steps: int = STEPS,
    links: Sequence[float] = LINKS,
    size: dict[str, int] | None = None,
) -> ParallelBench | EqualBench | KillBench:
    """Train on several processes in every way: bytes sent, steps a second, loss after the same
    examples, simulated links, pipelines.
    """
    if kills:
        return kill_ranks(kills, processes=processes, keep=keep)
    if equal:
        return equal_to_one(keep)
    check_known([model], MODELS)
    options = SIZE if size is None else size
    work = MODELS[model](**options)
    known = ParallelBench(
        model=work.name,
        parameters=sum(weight.numel() for weight in work.model.parameters()),
        processes=processes,
        steps=steps,
    )

    def told(rank: int, part: tuple[str, Any]) -> None:
        nonlocal known
        if rank == 0:
            known = known.model_copy(update=PARTS[part[0]](known, part[1]))
            keep(known)

    with keep_when_stopped(lambda: bool(known.ways)):
        run(on_each, model, options, seeds, rounds, steps,
            processes=processes, threads=1, on_told=told)  # fmt: skip
        for rows in _links(model, options, links, steps) if links else ():
            told(0, ("links", rows))
    return known


def _with_race(known: ParallelBench, raced: dict[str, Any]) -> dict[str, Any]:
    reference = raced[REFERENCE]["seconds"]
    ways = []
    for way, result in raced.items():
        ratios = [a / b for a, b in zip(reference, result["seconds"], strict=True)]
        middle, interval = median_interval(numpy.asarray(ratios))
        ways.append(
            ParallelWay(
                way=way,
                steps_per_s=result["steps"] * len(ratios) / sum(result["seconds"]),
                ratio=middle,
                interval=interval,
                **{name: result[name] for name in _KEPT},
            )
        )
    return {"ways": tuple(ways)}


def _with_losses(known: ParallelBench, losses: dict[str, float]) -> dict[str, Any]:
    ways = (row.model_copy(update={"losses": (*row.losses, losses[row.way])}) for row in known.ways)
    return {"ways": tuple(ways), "alone": (*known.alone, losses["one process"])}


PARTS: dict[str, Callable[[ParallelBench, Any], dict[str, Any]]] = {
    "race": _with_race,
    "losses": _with_losses,
    "pipelines": lambda known, pipelines: {"pipelines": pipelines},
    "links": lambda known, rows: {"links": (*known.links, *rows)},
}
_KEPT = ("sent_bytes", "wait_share", "weights_bytes", "optimizer_bytes")


class Trainee:
    """A model that is trained in one way; alone where the way is none of these."""

    def __init__(self, model: str, options: dict[str, int], way: str, seed: int = 0) -> None:
        self.work = MODELS[model](**options, seed=seed)
        self.model: nn.Module = self.work.model.train()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.strategy = DataParallel(**WAYS[way]) if way in WAYS else None
        if self.strategy is not None:
            self.model, self.optimizer = self.strategy.prepare(self.model, self.optimizer)
        self.done = 0

    def learn(self, steps: int) -> list[float]:
        """Take steps on this process's share of the batches; the losses."""
        part = (1, 0)
        if self.strategy is not None and dist.is_initialized():
            part = (dist.get_world_size(), dist.get_rank())
        first, self.done = self.done, self.done + steps
        return learn(self.work, self.model, self.optimizer, range(first, self.done), part)


def race(
    model: str,
    options: dict[str, int],
    rounds: int,
    steps: int,
    gbit_per_s: float = 0.0,
    names: Sequence[str] = tuple(WAYS),
) -> dict[str, Any]:
    """Seconds of each round of each way, in turn; on a simulated link where one is given."""
    link = Link(latency_us=LATENCY_US, gbit_per_s=gbit_per_s) if gbit_per_s else None
    trainees = {way: Trainee(model, options, way) for way in names}
    seconds: dict[str, list[float]] = {way: [] for way in trainees}
    for trainee in trainees.values():
        trainee.learn(steps)  # also past the early exchanges of local steps
    for _ in range(rounds):
        for way, trainee in trainees.items():
            with simulated_link(link) if link else nullcontext():
                dist.barrier()
                begin = time.perf_counter()
                trainee.learn(steps)
                dist.barrier()
                seconds[way].append(time.perf_counter() - begin)
    results = {}
    for way, trainee in trainees.items():
        assert trainee.strategy is not None
        report = trainee.strategy.report()
        own = slice(steps, None)
        results[way] = {
            "seconds": seconds[way],
            "steps": steps,
            "computed_ms": median(report.computed_ms[own]),
            "sent_bytes": fmean(report.sent_bytes[own]),
            "wait_share": report.wait_share,
            "weights_bytes": report.weights_bytes,
            "optimizer_bytes": report.optimizer_bytes,
        }
        trainee.strategy.finish()
    return results


def on_each(model: str, options: dict[str, int], seeds: int, rounds: int, steps: int) -> None:
    """What each process of one launch takes part in; each part is told as soon as it is over."""
    tell(("race", race(model, options, rounds, min(ROUND, steps))))
    for seed in range(seeds):
        tell(("losses", losses_of(model, options, steps, seed)))
    pipelines = tuple(
        piped(model, options, schedule, begins)
        for schedule in ("gpipe", "1f1b")
        for begins in (None, "equal")
    )
    tell(("pipelines", pipelines))


def losses_of(model: str, options: dict[str, int], steps: int, seed: int) -> dict[str, float]:
    """The mean loss of each way's last steps, over all processes, after the same examples."""
    results = {}
    for way in WAYS:
        trainee = Trainee(model, options, way, seed)
        last = torch.tensor(fmean(trainee.learn(steps)[-16:]))
        assert trainee.strategy is not None
        trainee.strategy.finish()
        dist.all_reduce(last)
        results[way] = last.item() / dist.get_world_size()
    results["one process"] = fmean(Trainee(model, options, "one process", seed).learn(steps)[-16:])
    return results


CHECKED = ("DDP", "DDP, bf16", "DDP, PowerSGD", "local 32", "FSDP2")


def _links(
    model: str, options: dict[str, int], links: Sequence[float], steps: int
) -> Iterator[list[LinkStep]]:
    """Steps over each simulated link: two and four real processes against the simulation, up to
    16.
    """
    work = MODELS[model](**options)
    weights = work.model.parameters()
    size = float(sum(weight.numel() * weight.element_size() for weight in weights))
    communications = {
        "DDP": Communication(buckets_of(size)),
        "DDP, bf16": Communication(buckets_of(size / 2)),
        "DDP, PowerSGD": Communication(
            (float(sum(power_bytes(weight.shape) for weight in work.model.parameters())),),
            is_overlapped=False,
        ),
        "local 32": Communication((size,), every=32, is_overlapped=False),
        "FSDP2": Communication(buckets_of(size), passes=3),
    }
    count = min(32, steps)

    def raced(ranks: int, gbit_per_s: float) -> dict[str, Any]:
        given = (race, model, options, 3, count, gbit_per_s, CHECKED)
        results: dict[str, Any] = run(*given, processes=ranks, threads=1)[0]
        return results

    # Over the loopback interface, where what remains is not the link's.
    bare = {ranks: raced(ranks, 0.0) for ranks in REAL}
    for gbit_per_s in links:
        link = Link(latency_us=LATENCY_US, gbit_per_s=gbit_per_s)
        linked = {ranks: raced(ranks, gbit_per_s) for ranks in REAL}
        rows: list[LinkStep] = []
        for ranks in RANKS:
            # Processes beyond the cores of this machine share them; those of others do not.
            here = bare[ranks if ranks in bare else REAL[0]]
            own = here["local 32"]["computed_ms"]
            compute = Compute(0.3 * own, 0.6 * own, 0.1 * own)
            for way, communication in communications.items():
                rest = max(0.0, step_ms(here[way]) - own) * communication.every
                exchange = replace(communication, least_ms=rest)
                rows.append(
                    LinkStep(
                        way=way,
                        ranks=ranks,
                        gbit_per_s=gbit_per_s,
                        simulated_ms=simulate_steps(compute, exchange, link, ranks).step_ms,
                        measured_ms=step_ms(linked[ranks][way]) if ranks in linked else None,
                    )
                )
        yield rows


def step_ms(raced: dict[str, Any]) -> float:
    """The time of a step of one way of a race."""
    seconds: list[float] = raced["seconds"]
    return 1e3 * median(seconds) / int(raced["steps"])


def piped(
    model: str, options: dict[str, int], schedule: str, begins: str | None, steps: int = 6
) -> PipelineSchedule:
    """The step of a pipeline whose time is in the middle of several."""
    work = MODELS[model](**options)
    assert work.train is not None
    stage = pipeline(work, schedule=schedule, microbatches=4, begins=begins)
    records = []
    for step in range(steps):
        stage.step(*work.train[step % len(work.train)])
        records.append(stage.record())
    records = sorted(records[1:], key=lambda record: record.measured_ms or 0.0)
    return records[len(records) // 2]
