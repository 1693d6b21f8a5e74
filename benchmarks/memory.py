"""What a memory pool changes: calls with it and without it, in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch

from paifuser_lab.bench.runner import BenchRecord, Columns, Names, Seconds, Threads, measured_rows
from paifuser_lab.bench.text import megabytes, number, ratio
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
from paifuser_lab.model.tensors import tensors_in
from paifuser_lab.records import Quality, Record
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload, running

MODELS = ("resnet18", "mobilenetv2", "convnext-t", "vit-s", "swin-t", "yolo", "unet", "segnet")
BATCHES, TRAINED_BATCHES = (1, 8, 32), (8,)
WITHOUT, WITH = "without a pool", "with a pool"
LEARNING_RATE = 1e-4
ROUNDS = 30


class PairRow(Record):
    """One model at one batch: calls with something against calls without it, in the same rounds."""

    model: str
    batch: int
    without_ms: float
    with_ms: float
    ratio: float
    interval: tuple[float, float]
    rounds: int
    without_faults: float | None = None
    with_faults: float | None = None
    quality: Quality | None = None


class PoolRow(PairRow):
    """Calls with a pool and without it.

    `tensors_bytes` is the most that tensors hold in a call, with or without a pool;
    `without_bytes` and `with_bytes` are the most of the process that is resident in a call, past
    what is before it.
    """

    is_training: bool
    cpu_ratio: float
    tensors_bytes: int
    without_bytes: int | None
    with_bytes: int | None

    @property
    def kind(self) -> str:
        """What a call is."""
        return "training" if self.is_training else "inference"


class MemoryBench(BenchRecord):
    """The result of `python -m benchmarks memory`."""

    threads: int
    rows: tuple[PoolRow, ...] = ()
    columns: ClassVar[Columns] = {
        "model": "model",
        "batch": lambda row: f"{row.batch}, {row.kind}",
        "ms": lambda row: f"{number(row.without_ms)} → {number(row.with_ms)}",
        "×": lambda row: ratio(row.ratio, row.interval),
        "page faults a call": lambda row: (
            f"{_count(row.without_faults)} → {_count(row.with_faults)}"
        ),
        "resident in a call, MB": lambda row: (
            f"{megabytes(row.without_bytes)} → {megabytes(row.with_bytes)}"
        ),
    }

    @property
    def title(self) -> str:
        threads = threads_of(self.threads)
        return f"a memory pool on {self.machine}, {threads}: without → with it; × is faster with it"

    @property
    def counts(self) -> tuple[int, int]:
        """How many calls are faster with a pool, and how many were measured on a busy machine."""
        faster = sum(row.interval[0] > 1 for row in self.rows)
        return faster, sum(
            row.quality is not None and not row.quality.is_quiet for row in self.rows
        )

    @property
    def most(self) -> PoolRow:
        """The row that gains most for certain."""
        return max(self.rows, key=lambda row: row.interval[0])

    @property
    def summary(self) -> str:
        """How many rows are faster, and the failures, a line each."""
        faster, busy = self.counts
        caution = f"; {busy} were measured on a busy machine" if busy else ""
        line = f"{faster} of {len(self.rows)} are faster with a pool{caution}."
        return "\n".join([line, *self.failed])


def threads_of(count: int) -> str:
    """one thread, 2 threads."""
    return "one thread" if count == 1 else f"{count} threads"


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 20.0,
    threads: Threads = 1,
    batches: Sequence[int] = BATCHES,
    trained: Sequence[int] = TRAINED_BATCHES,
) -> MemoryBench:
    """Time calls with a memory pool and without one, and count their page faults and memory."""
    cases = {
        f"{name}, batch {batch}{', training' if is_training else ''}": (name, batch, is_training)
        for name in names or MODELS
        for sizes, is_training in ((batches, False), (trained, True))
        for batch in sizes
    }
    measured = measured_rows(
        tuple(cases),
        lambda label: [measured_row(*cases[label], seconds, threads)],
        "models and batches",
    )
    return MemoryBench(threads=threads, **measured)


def measured_row(name: str, batch: int, is_training: bool, seconds: float, threads: int) -> PoolRow:
    """Time a model's calls in turn with a pool and without it."""
    work = load(name, batch=batch)
    pool = HeapPool(name)
    around: dict[str, Callable[[], AbstractContextManager[Any]]]
    around = {WITHOUT: nullcontext, WITH: pool.held}
    with running(work.model):
        call = _training_call(work) if is_training else partial(work.inputs.clone(), work.model)
        candidates = [
            Candidate(label, call, threads, work.device, context)
            for label, context in around.items()
        ]
        pair, samples = timed_pair(candidates, seconds)
        resident = {label: _peak_resident(call, context) for label, context in around.items()}
        tensors = peak_bytes(call, work.device)
    return PoolRow(
        model=name,
        batch=batch,
        is_training=is_training,
        cpu_ratio=samples[WITHOUT].median_cpu_ms / samples[WITH].median_cpu_ms,
        tensors_bytes=tensors,
        without_bytes=resident[WITHOUT],
        with_bytes=resident[WITH],
        **pair,
    )


def _training_call(work: Workload) -> Callable[[], None]:
    """A step of SGD on the mean square of the outputs; `running` puts the flags back."""
    work.model.train()
    inputs = work.inputs.clone()
    optimizer = torch.optim.SGD(work.model.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        with torch.enable_grad():
            outputs = [one for one in tensors_in(inputs(work.model)) if one.requires_grad]
            loss = sum(output.float().square().mean() for output in outputs)
            optimizer.zero_grad()
            torch.as_tensor(loss).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return step


def timed_pair(
    candidates: Sequence[Candidate], seconds: float
) -> tuple[dict[str, Any], dict[str, Samples]]:
    """Two candidates timed in turn: the times, ratio and page faults of a row, and the samples."""
    watch = MachineWatch()
    *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
    without, with_ = (samples[candidate.name] for candidate in candidates)
    ratio, interval = ratio_of_rounds(without, with_)
    quality = watch.quality(
        waited_share=waited_share(list(samples.values())),
        spread=spread(without.rounds_ms),
        intervals=[interval],
        with_processes=False,
    )
    pair = {
        "without_ms": without.median_ms,
        "with_ms": with_.median_ms,
        "ratio": ratio,
        "interval": interval,
        "rounds": len(with_.rounds_ms),
        "without_faults": without.median_page_faults,
        "with_faults": with_.median_page_faults,
        "quality": quality,
    }
    return pair, samples


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


def _count(faults: float | None) -> str:
    return "–" if faults is None else f"{faults:,.0f}"
