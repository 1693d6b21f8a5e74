"""What a memory pool changes: time, page faults and resident memory of calls with it and without
it, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from paifuser_lab.bench.each import measure_each
from paifuser_lab.machine import machine_label
from paifuser_lab.measure import (
    Candidate,
    MachineWatch,
    Samples,
    peak_bytes,
    peak_resident_bytes,
    ratio_of_rounds,
    resident_bytes,
    restart_peak,
    rounds_in_turn,
    spread,
    waited_share,
)
from paifuser_lab.memory.pools import HeapPool
from paifuser_lab.records import Quality, Record, readable_bytes
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload, running

MODELS = ("resnet18", "mobilenetv2", "convnext-t", "vit-s", "swin-t", "yolo", "unet", "segnet")
BATCHES, TRAINED_BATCHES = (1, 8, 32), (8,)
WITHOUT, WITH = "without a pool", "with a pool"
LEARNING_RATE = 1e-4
ROUNDS = 30


class PoolRow(Record):
    """One model at one batch: calls with a pool against calls without it, in the same rounds.

    `tensors_bytes` is the most that tensors hold in a call, with or without a pool;
    `without_bytes` and `with_bytes` are the most of the process that is resident in a call, past
    what is before it.
    """

    model: str
    batch: int
    is_training: bool
    without_ms: float
    with_ms: float
    ratio: float
    interval: tuple[float, float]
    cpu_ratio: float
    rounds: int
    without_faults: float | None
    with_faults: float | None
    tensors_bytes: int
    without_bytes: int | None
    with_bytes: int | None
    quality: Quality | None = None

    @property
    def kind(self) -> str:
        """What a call is."""
        return "training" if self.is_training else "inference"


class MemoryBench(Record):
    """The result of `python -m benchmarks memory`."""

    machine: str
    threads: int
    rows: tuple[PoolRow, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"a memory pool on {self.machine}, {threads}: without → with it; × is faster with it"

    def table(self) -> list[dict[str, str]]:
        """A row for each model and batch."""
        return [_readable(row) for row in self.rows] or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """How many rows are faster, and the failures, a line each."""
        faster = sum(row.interval[0] > 1 for row in self.rows)
        busy = sum(row.quality is not None and not row.quality.is_quiet for row in self.rows)
        counts = f"{faster} of {len(self.rows)} are faster with a pool"
        caution = f"; {busy} were measured on a busy machine" if busy else ""
        failed = [f"{name}: {why}" for name, why in self.failures.items()]
        return "\n".join([f"{counts}{caution}.", *failed])


def bench(
    names: Sequence[str] = (),
    *,
    batches: Sequence[int] = BATCHES,
    trained: Sequence[int] = TRAINED_BATCHES,
    seconds: float = 20.0,
    threads: int = 1,
) -> MemoryBench:
    """Measure each model at each batch; a failure is recorded, and the next one is measured."""
    cases = {
        f"{name}, batch {batch}{', training' if is_training else ''}": (name, batch, is_training)
        for name in names or MODELS
        for sizes, is_training in ((batches, False), (trained, True))
        for batch in sizes
    }
    rows: list[PoolRow] = []

    def measure(label: str) -> None:
        name, batch, is_training = cases[label]
        work = load(name, batch=batch)
        rows.append(measured_row(work, name, batch, is_training, seconds, threads))

    failures = measure_each(tuple(cases), measure, "models and batches")
    return MemoryBench(
        machine=machine_label(), threads=threads, rows=tuple(rows), failures=failures
    )


def measured_row(
    work: Workload, name: str, batch: int, is_training: bool, seconds: float, threads: int
) -> PoolRow:
    """Time a workload's calls in turn with a pool and without it."""
    pool = HeapPool(name)
    around: dict[str, Callable[[], AbstractContextManager[Any]]]
    around = {WITHOUT: nullcontext, WITH: pool.held}
    with running(work.model):
        call = _training_call(work) if is_training else partial(work.inputs.clone(), work.model)
        candidates = [
            Candidate(label, call, threads, work.device, context)
            for label, context in around.items()
        ]
        watch = MachineWatch()
        *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
        quality = quality_of(watch, samples, WITHOUT, WITH)
        resident = {label: _peak_resident(call, context) for label, context in around.items()}
        tensors = peak_bytes(call, work.device)
    ratio, interval = ratio_of_rounds(samples[WITHOUT], samples[WITH])
    return PoolRow(
        model=name,
        batch=batch,
        is_training=is_training,
        without_ms=samples[WITHOUT].median_ms,
        with_ms=samples[WITH].median_ms,
        ratio=ratio,
        interval=interval,
        cpu_ratio=samples[WITHOUT].median_cpu_ms / samples[WITH].median_cpu_ms,
        rounds=len(samples[WITH].rounds_ms),
        without_faults=samples[WITHOUT].median_page_faults,
        with_faults=samples[WITH].median_page_faults,
        tensors_bytes=tensors,
        without_bytes=resident[WITHOUT],
        with_bytes=resident[WITH],
        quality=quality,
    )


def _training_call(work: Workload) -> Callable[[], None]:
    """A step of SGD on the mean square of the outputs; `running` puts the flags back."""
    work.model.train()
    inputs = work.inputs.clone()
    optimizer = torch.optim.SGD(work.model.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        with torch.enable_grad():
            outputs = pytree.tree_leaves(inputs(work.model))
            loss = sum(
                output.float().square().mean()
                for output in outputs
                if isinstance(output, torch.Tensor) and output.requires_grad
            )
            optimizer.zero_grad()
            torch.as_tensor(loss).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return step


def quality_of(
    watch: MachineWatch, samples: dict[str, Samples], without: str, with_: str
) -> Quality:
    """How quiet the machine was while two candidates were timed in turn."""
    return watch.quality(
        waited_share=waited_share(list(samples.values())),
        spread=spread(samples[without].rounds_ms),
        intervals=[ratio_of_rounds(samples[without], samples[with_])[1]],
        with_processes=False,
    )


def _peak_resident(
    call: Callable[[], Any], around: Callable[[], AbstractContextManager[Any]]
) -> int | None:
    """The most that becomes resident in three calls; None where the kernel has no count."""
    with around():
        before = resident_bytes()
        if not restart_peak():
            return None
        for _ in range(3):
            call()
        peak = peak_resident_bytes()
    return None if peak is None else max(0, peak - before)


def _readable(row: PoolRow) -> dict[str, str]:
    low, high = row.interval
    return {
        "model": row.model,
        "batch": f"{row.batch}, {row.kind}",
        "ms": f"{row.without_ms:.3g} → {row.with_ms:.3g}",
        "×": f"{row.ratio:.2f} ({low:.2f}–{high:.2f})",
        "page faults": f"{_count(row.without_faults)} → {_count(row.with_faults)}",
        "resident": f"{readable_bytes(row.without_bytes)} → {readable_bytes(row.with_bytes)}",
        "tensors": readable_bytes(row.tensors_bytes),
        "machine": "" if row.quality is None else row.quality.state,
    }


def _count(faults: float | None) -> str:
    return "–" if faults is None else f"{faults:,.0f}"
