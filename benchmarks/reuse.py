"""What the step `reuse` changes: the peak and the time of a call, with and without it, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from paifuser_lab.bench.runner import BenchRecord, Columns, Names, Seconds, Threads, measured_rows
from paifuser_lab.bench.text import megabytes, number, ratio
from paifuser_lab.measure import (
    Candidate,
    peak_bytes,
)
from paifuser_lab.memory.lifetimes import record
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import running

from .memory import MODELS, PairRow, threads_of, timed_pair

BATCHES = (1, 8, 32)
WITHOUT, WITH = "folded", "folded, reuse"


class ReuseRow(PairRow):
    """The folded model against the same with `reuse`.

    `buffers` are what the model refers to at once; the peak is that of torch's allocator, with the
    workspace inside operators. Neither has weights and inputs.
    """

    note: str  # what was put in place
    without_buffers: int
    with_buffers: int
    without_bytes: int
    with_bytes: int


class ReuseBench(BenchRecord):
    """The result of `python -m benchmarks reuse`."""

    threads: int
    rows: tuple[ReuseRow, ...]
    columns: ClassVar[Columns] = {
        "model": "model",
        "batch": "batch",
        "in place": "note",
        "buffers, MB": lambda row: (
            f"{megabytes(row.without_buffers)} → {megabytes(row.with_buffers)}"
        ),
        "peak, MB": lambda row: f"{megabytes(row.without_bytes)} → {megabytes(row.with_bytes)}",
        "ms": lambda row: f"{number(row.without_ms)} → {number(row.with_ms)}",
        "×": lambda row: ratio(row.ratio, row.interval),
    }

    @property
    def title(self) -> str:
        return f"reuse on {self.machine}, {threads_of(self.threads)}, fp32"

    @property
    def summary(self) -> str:
        """How many need less and how many are faster, and the failures, a line each."""
        smaller = sum(row.with_bytes < row.without_bytes for row in self.rows)
        faster = sum(row.interval[0] > 1 for row in self.rows)
        text = f"{smaller} of {len(self.rows)} have a lower peak, {faster} a lower time"
        return "\n".join([*([text] if self.rows else []), *self.failed])


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 20.0,
    threads: Threads = 1,
    batches: Sequence[int] = BATCHES,
) -> ReuseBench:
    """Measure peak memory and time of calls with the step `reuse` and without it."""
    cases = {
        f"{name}, batch {batch}": (name, batch) for name in names or MODELS for batch in batches
    }
    measured = measured_rows(
        tuple(cases),
        lambda label: [row_of(*cases[label], seconds=seconds, threads=threads)],
        "models and batches",
    )
    return ReuseBench(threads=threads, **measured)


def row_of(name: str, batch: int, *, seconds: float, threads: int) -> ReuseRow:
    """Time a model's calls in turn, with the step and without it, and measure what they hold."""
    work = load(name, batch=batch)
    variants = {
        WITHOUT: apply(work, Recipe(["fold"])),
        WITH: apply(work, Recipe(["fold", "reuse"])),
    }
    candidates = []
    for label, variant in variants.items():
        call = partial(work.inputs.clone(), variant.model)
        candidates.append(Candidate(label, call, threads, work.device))
    with running(variants[WITHOUT].model), running(variants[WITH].model):
        pair, _ = timed_pair(candidates, seconds)
    held = {label: _held(variant) for label, variant in variants.items()}
    return ReuseRow(
        model=name,
        batch=batch,
        note=variants[WITH].reports[-1].notes[0].partition(" in place")[0],
        without_buffers=held[WITHOUT][0],
        with_buffers=held[WITH][0],
        without_bytes=held[WITHOUT][1],
        with_bytes=held[WITH][1],
        **pair,
    )


def _held(variant: Variant) -> tuple[int, int]:
    """The buffers of a call at once, and the peak of torch's allocator."""
    inputs = variant.work.inputs
    with running(variant.model):
        first, again = inputs.clone(), inputs.clone()
        recording = record(variant.model, lambda: first(variant.model))
        return recording.referenced_bytes, peak_bytes(
            lambda: again(variant.model), variant.work.device
        )
