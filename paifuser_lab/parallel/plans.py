"""Which way to train on several processes would be fastest here, predicted from measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ..arguments import check_count
from ..errors import ParallelError, StepError
from ..machine import machine_label
from ..machine import threads as with_threads
from ..model.copying import copied
from ..model.flops import counter
from ..records import Link, ParallelOption, ParallelPlan, TensorPlan, readable_bytes
from ..workload import Inputs, Workload
from .chain import Chain
from .launch import run
from .pipelines import batch_of, part_of, target_part
from .schedules import partition, predicted_schedule
from .simulation import Communication, Compute, buckets_of, simulate_steps
from .tensor import tensor_plan

ROUNDS = 7  # of a step
SMALL, LARGE, LINK_ROUNDS = 1, 1 << 21, 20  # floats that are exchanged to measure a link
SIDE = 256  # of the matrices that are multiplied meanwhile
STATES = 4  # weights, gradients and two moments of Adam, each of the weights' size
POWER_RANK, AVERAGE_EVERY, MICROBATCHES = 4, 32, 4


@dataclass(frozen=True)
class Measured:
    """A training step, measured on one process."""

    compute: Compute
    spread: tuple[float, ...]  # times of a step relative to their median


def plan(
    work: Workload,
    processes: int = 2,
    *,
    link: Link | None = None,
    rounds: int = ROUNDS,
) -> ParallelPlan:
    """Predict the time of a step of each strategy over the first batch of the train data.

    The step is timed here, with the whole batch on all threads and with a process's share on its
    share of the threads. Without a `link` processes of this machine measure theirs, and how much
    they slow each other down; a link that is given connects machines that do not.
    """
    check_count("processes", processes, least=2, error=ParallelError)
    inputs, target = batch_of(work)
    share = part_of(inputs, processes, work.name)
    if link is None:
        link, slowdown = measure_link(processes)
        threads = max(1, torch.get_num_threads() // processes)
    else:
        slowdown, threads = 1.0, torch.get_num_threads()
    alone = whole = measure_step(work, inputs, target, rounds)
    has_fewer = threads < torch.get_num_threads()
    with with_threads(threads):
        own = measure_step(work, share, target_part(inputs, target, processes), rounds)
        if has_fewer:
            whole = measure_step(work, inputs, target, rounds)
        context = _Context(work, processes, link, slowdown, own, whole)
        pipelined = _pipeline(context, inputs, target)
    one = ParallelOption(
        strategy="one process",
        step_ms=alone.compute.total_ms,
        compute_ms=alone.compute.total_ms,
        state_bytes=STATES * context.weights_bytes,
        reason="all threads on the whole batch, and nothing is exchanged",
    )
    options = [one, *_on_shares(context), _tensor(context), pipelined]
    options.sort(key=lambda option: (not option.is_possible, option.step_ms or 0.0))
    return ParallelPlan(
        workload=work.name,
        machine=machine_label(),
        processes=processes,
        threads=torch.get_num_threads(),
        slowdown=slowdown,
        link=link,
        options=tuple(options),
    )


def measure_step(work: Workload, inputs: Inputs, target: Any, rounds: int = ROUNDS) -> Measured:
    """Time the forward pass, the backward pass and an update by AdamW, on a copy of the model."""
    assert work.loss is not None
    model = copied(work.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9)
    samples: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        moments = [time.perf_counter()]
        loss = work.loss(inputs.clone()(model), target)
        moments.append(time.perf_counter())
        loss.backward()  # type: ignore[no-untyped-call]
        moments.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        moments.append(time.perf_counter())
        a, b, c = (1e3 * (end - begin) for begin, end in pairwise(moments))
        samples.append((a, b, c))
    samples = samples[1:]
    compute = Compute(*(median(column) for column in zip(*samples, strict=True)))
    middle = median(sum(sample) for sample in samples)
    return Measured(compute, tuple(sum(sample) / middle for sample in samples))


@dataclass(frozen=True)
class _Context:
    """What the strategies are predicted from."""

    work: Workload
    processes: int
    link: Link
    slowdown: float
    own: Measured  # a process's share of the batch on its share of the threads
    whole: Measured  # the whole batch on a process's share of the threads

    @property
    def weights_bytes(self) -> int:
        """The bytes of the model's weights."""
        return sum(weight.nbytes for weight in self.work.model.parameters())

    def option(
        self,
        strategy: str,
        compute: Compute,
        communication: Communication,
        state_bytes: float,
        reason: str,
    ) -> ParallelOption:
        """The prediction for one strategy."""
        compute = compute.scaled(self.slowdown)
        simulated = simulate_steps(
            compute, communication, self.link, self.processes, spread=self.own.spread
        )
        return ParallelOption(
            strategy=strategy,
            step_ms=simulated.step_ms,
            compute_ms=compute.total_ms,
            wait_ms=simulated.wait_ms,
            sent_bytes=communication.sent_bytes(self.processes),
            state_bytes=round(state_bytes),
            reason=reason,
        )


def _on_shares(context: _Context) -> Iterator[ParallelOption]:
    """The strategies in which each process has a share of the batch."""
    own, size, processes = context.own.compute, context.weights_bytes, context.processes
    state = STATES * size
    for name, share, how in (
        ("DDP", 1.0, "during the backward pass"),
        ("DDP, bf16", 0.5, "in bf16"),
    ):
        why = f"{readable_bytes(round(share * size))} of gradients a step, {how}"
        yield context.option(name, own, Communication(buckets_of(share * size)), state, why)
    sent = sum(power_bytes(weight.shape) for weight in context.work.model.parameters())
    why = f"factors of rank {POWER_RANK}, {readable_bytes(sent)} a step, after the backward pass"
    factors = Communication((float(sent),), is_overlapped=False)
    yield context.option("DDP, PowerSGD", own, factors, state + size, why)
    why = f"weights are averaged every {AVERAGE_EVERY} steps, which trains otherwise than one does"
    weights = Communication((float(size),), every=AVERAGE_EVERY, is_overlapped=False)
    yield context.option(f"local {AVERAGE_EVERY}", own, weights, state, why)
    why = "weights are gathered twice and gradients scattered; the state is divided"
    compute = replace(own, update_ms=own.update_ms / processes)
    gathered = Communication(buckets_of(size), passes=3)
    yield context.option("FSDP2", compute, gathered, state / processes, why)


def power_bytes(shape: torch.Size, rank: int = POWER_RANK) -> int:
    """The bytes of a gradient as PowerSGD sends it: two factors of a matrix, or a vector whole."""
    if len(shape) < 2:
        return 4 * shape.numel()
    rows = shape[0]
    columns = shape.numel() // rows
    return 4 * min(shape.numel(), rank * (rows + columns))


def _tensor(context: _Context) -> ParallelOption:
    divided = tensor_plan(context.work, context.processes)
    if not divided.divided:
        return ParallelOption(strategy="tensor parallel", reason=divided.reason)
    share = _flops_share(context.work, divided)
    factor = 1 - share + share / context.processes
    whole = context.whole.compute
    compute = whole.scaled(factor)
    examples = _rows(batch_of(context.work)[0]) / _rows(context.work.inputs)
    sizes = [examples * size for block in divided.divided for size in block.exchanged_bytes]
    state = STATES * context.weights_bytes * divided.own_parameters / max(divided.parameters, 1)
    why = (
        f"{share:.0%} of the FLOPs are divided; {len(sizes)} sums of activations a step are waited "
        "for"
    )
    communication = Communication(tuple(sizes), is_overlapped=False)
    return context.option("tensor parallel", compute, communication, state, why)


def _pipeline(context: _Context, inputs: Inputs, target: Any) -> ParallelOption:
    name, work, slowdown = "pipeline, 1f1b", context.work, context.slowdown
    try:
        part = part_of(inputs, MICROBATCHES, work.name)
        chain = Chain(work.model, part, name=work.name)
        assert work.loss is not None
        costs = chain.costs(work.loss, target_part(inputs, target, MICROBATCHES))
        times = [slowdown * (cost.forward_ms + cost.backward_ms) for cost in costs]
        starts = partition(times, context.processes)
    except (ParallelError, StepError) as error:
        return ParallelOption(strategy=name, reason=str(error).rstrip("."))
    entries = [costs[start].entry_bytes for start in starts[1:]]
    record = predicted_schedule(
        work.name,
        costs,
        starts,
        "1f1b",
        MICROBATCHES,
        split="measured times",
        transfer_ms=1e3 * context.link.transfer_s(max(entries)),
    )
    largest = max(stage.parameter_bytes for stage in record.stages)
    update_ms = context.whole.compute.update_ms * largest / context.weights_bytes
    microbatch_ms = max(stage.forward_ms + stage.backward_ms for stage in record.stages)
    step = slowdown * (record.predicted_ms + update_ms)
    busy = slowdown * (MICROBATCHES * microbatch_ms + update_ms)
    return ParallelOption(
        strategy=name,
        step_ms=step,
        compute_ms=busy,
        wait_ms=step - busy,
        sent_bytes=MICROBATCHES * max(entries),
        state_bytes=STATES * largest,
        reason=f"{MICROBATCHES} microbatches, {record.predicted_bubble:.0%} of the time is bubble",
    )


def _flops_share(work: Workload, divided: TensorPlan) -> float:
    """The share of the forward pass's FLOPs that the divided layers have."""
    model = copied(work.model).eval()
    with counter() as counted, torch.no_grad():
        work.inputs.clone()(model)
    counts = {name: sum(ops.values()) for name, ops in counted.get_flop_counts().items()}
    root = type(model).__name__
    own = sum(
        counts.get(f"{root}.{layer}", 0) for block in divided.divided for layer in block.layers
    )
    return float(own / max(counts.get("Global", 0), 1))


def _rows(inputs: Inputs) -> int:
    return inputs.tensors[0].shape[0]


def measure_link(processes: int = 2) -> tuple[Link, float]:
    """The link between processes of this machine, and how much they slow each other down."""
    results: list[Any] = run(probe, processes=processes, threads=1)
    small_s, large_s, slowdown = results[0]
    return link_of(small_s, large_s, processes), slowdown


def link_of(small_s: float, large_s: float, processes: int) -> Link:
    """The link on which all-reduces of a small and of a large tensor take these seconds."""
    passes = 2 * (processes - 1)
    latency_s = small_s / passes
    transfer_s = max(large_s - small_s, 1e-9)
    sent_bits = passes * 32 * LARGE / processes
    return Link(
        latency_us=1e6 * latency_s,
        gbit_per_s=sent_bits / transfer_s / 1e9,
        source=f"measured between {processes} processes",
    )


def probe() -> tuple[float, float, float]:
    """Seconds of a small and of a large all-reduce, and the slowdown by the other processes."""
    small, large = (
        _median_s(partial(dist.all_reduce, torch.zeros(count))) for count in (SMALL, LARGE)
    )
    matrix = torch.ones(SIDE, SIDE) / SIDE
    dist.barrier()
    alone = _median_s(lambda: matrix @ matrix) if dist.get_rank() == 0 else 0.0
    dist.barrier()
    together = _median_s(lambda: matrix @ matrix)
    return small, large, max(1.0, together / alone) if alone else 1.0


def _median_s(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(LINK_ROUNDS):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)
