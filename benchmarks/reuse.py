"""What the step `reuse` changes: the peak and the time of a call, with and without it, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from paifuser_lab.bench.each import measure_each
from paifuser_lab.machine import machine_label
from paifuser_lab.measure import (
    Candidate,
    MachineWatch,
    peak_bytes,
    ratio_of_rounds,
    rounds_in_turn,
)
from paifuser_lab.memory.lifetimes import record
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import Quality, Record, readable_bytes
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.open import load
from paifuser_lab.workload import running

from .memory import MODELS, quality_of

BATCHES = (1, 8, 32)
WITHOUT, WITH = "folded", "folded, reuse"
ROUNDS = 30


class ReuseRow(Record):
    """One model at one batch: the folded model against the same with `reuse`, in the same rounds.

    `buffers` are what the model refers to at once; the peak is that of torch's allocator, with the
    workspace inside operators. Neither has weights and inputs.
    """

    model: str
    batch: int
    note: str  # what was put in place
    without_ms: float
    with_ms: float
    ratio: float
    interval: tuple[float, float]
    rounds: int
    without_buffers: int
    with_buffers: int
    without_bytes: int
    with_bytes: int
    without_faults: float | None = None
    with_faults: float | None = None
    quality: Quality | None = None


class ReuseBench(Record):
    """The result of `python -m benchmarks reuse`."""

    machine: str
    threads: int
    rows: tuple[ReuseRow, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"reuse on {self.machine}, {self.threads} thread(s), fp32"

    @property
    def summary(self) -> str:
        """How many need less and how many are faster, and the failures, a line each."""
        lines = [f"{name}: {why}" for name, why in self.failures.items()]
        if self.rows:
            smaller = sum(row.with_bytes < row.without_bytes for row in self.rows)
            faster = sum(row.interval[0] > 1 for row in self.rows)
            text = f"{smaller} of {len(self.rows)} have a lower peak, {faster} a lower time"
            lines.insert(0, text)
        return "\n".join(lines)

    def table(self) -> list[dict[str, str]]:
        """A row for each model and batch."""
        rows = [
            {
                "model": row.model,
                "batch": str(row.batch),
                "in place": row.note,
                "buffers": _change(row.without_buffers, row.with_buffers),
                "peak": _change(row.without_bytes, row.with_bytes),
                "ms": f"{row.without_ms:.3g} → {row.with_ms:.3g}",
                "×": f"{row.ratio:.2f} ({row.interval[0]:.2f}–{row.interval[1]:.2f})",
                "machine": "" if row.quality is None else row.quality.state,
            }
            for row in self.rows
        ]
        return rows or [{"model": "nothing was measured"}]


def bench(
    names: Sequence[str] = (),
    *,
    batches: Sequence[int] = BATCHES,
    seconds: float = 20.0,
    threads: int = 1,
) -> ReuseBench:
    """Measure each model at each batch; failures are recorded."""
    cases = {
        f"{name}, batch {batch}": (name, batch) for name in names or MODELS for batch in batches
    }
    rows: list[ReuseRow] = []
    failures = measure_each(
        tuple(cases),
        lambda label: rows.append(row_of(*cases[label], seconds=seconds, threads=threads)),
        "models and batches",
    )
    return ReuseBench(machine=machine_label(), threads=threads, rows=tuple(rows), failures=failures)


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
        watch = MachineWatch()
        *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
        quality = quality_of(watch, samples, WITHOUT, WITH)
    held = {label: _held(variant) for label, variant in variants.items()}
    ratio, interval = ratio_of_rounds(samples[WITHOUT], samples[WITH])
    return ReuseRow(
        model=name,
        batch=batch,
        note=variants[WITH].reports[-1].notes[0].partition(" in place")[0],
        without_ms=samples[WITHOUT].median_ms,
        with_ms=samples[WITH].median_ms,
        ratio=ratio,
        interval=interval,
        rounds=len(samples[WITH].rounds_ms),
        without_buffers=held[WITHOUT][0],
        with_buffers=held[WITH][0],
        without_bytes=held[WITHOUT][1],
        with_bytes=held[WITH][1],
        without_faults=samples[WITHOUT].median_page_faults,
        with_faults=samples[WITH].median_page_faults,
        quality=quality,
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


def _change(before: int, after: int) -> str:
    return f"{readable_bytes(before)} → {readable_bytes(after)}"
